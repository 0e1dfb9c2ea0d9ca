"""`revoke(terminate=True)` buries a message as terminated: it is never dropped, and can be replayed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lanes.transport.test_ordinary_queues import ask
from tests.support.history import ids
from tests.support.lab import Lab
from tests.support.waiting import until

#: A message with an expiry uses Celery's code path in the worker, one without the fast path.
PATHS: dict[str, dict[str, Any]] = {"fast": {}, "celery": {"expires": 3600}}
POOLS = {"prefork": 2, "threads": 2, "gevent": 5}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("pool", POOLS)
def test_a_terminated_message_is_buried_and_can_be_replayed(lab: Lab, pool: str, path: str) -> None:
    # Given a running message, and another behind it
    lab.send("unwanted", ["lane"], kwargs={"gate": "open"}, **PATHS[path])
    lab.publish("behind", ["lane"])
    worker = lab.worker(pool, POOLS[pool])
    lab.started("unwanted")
    # When it is terminated
    lab.app.control.revoke("unwanted", terminate=True)
    # Then it is buried with its reason, and its lane continues
    until(lambda: lab.dead() == ["unwanted"])
    lab.ended("behind")
    assert ids(lab.history, "end") == ["behind"]
    problem = json.loads(lab.problem("unwanted"))
    assert problem["type"] == "Terminated"
    assert "SIGTERM" in problem["message"]
    assert "asked by" in problem["message"]
    assert f"{worker.name}@test" in problem["message"]
    assert "Terminated" in worker.log or "terminated" in worker.log
    # And a replay runs it to its end, in the same worker
    lab.open("open")
    assert lab.store.replay("unwanted")
    until(lambda: ids(lab.history, "start").count("unwanted") == 2)
    lab.drained()
    assert lab.dead() == []
    worker.stop()


def test_a_lane_waits_until_a_terminated_handler_has_ended(lab: Lab) -> None:
    # Given a handler with a slow cleanup when it is interrupted
    lab.publish("unwanted", ["lane"], task="clean_up_slowly", gate="open")
    lab.publish("behind", ["lane"])
    lab.worker("prefork", 2)
    lab.started("unwanted")
    # When it is terminated, and its cleanup has started
    lab.app.control.revoke("unwanted", terminate=True)
    until(lambda: "cleanup" in {event.what for event in lab.history})
    # Then its lane waits for it
    assert ids(lab.history, "start") == ["unwanted"]
    lab.open("open")
    lab.ended("behind")
    assert [event.what for event in lab.history] == ["start", "cleanup", "cleaned", "start", "end"]
    assert lab.dead() == ["unwanted"]


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_a_handler_that_ignores_termination_is_evicted(lab: Lab, pool: str) -> None:
    # Given a handler that suppresses interrupts
    lab.publish("stuck", ["lane"], task="ignore_interrupts", gate="never")
    lab.publish("behind", ["lane"])
    lab.worker(pool, POOLS[pool])
    lab.started("stuck")
    # When it is terminated
    lab.app.control.revoke("stuck", terminate=True)
    # Then it is buried after a grace period, and its lane continues
    lab.ended("behind")
    assert lab.dead() == ["stuck"]
    assert json.loads(lab.problem("stuck"))["type"] == "Terminated"


@pytest.mark.parametrize("pool", [*POOLS, "solo"])
def test_a_terminated_waiting_message_is_buried(lab: Lab, pool: str) -> None:
    # Given a worker that received the command to terminate a message before the message exists
    worker = lab.worker(pool, POOLS.get(pool, 1))
    ask(lab, worker, "ping")  # a broadcast before the worker listens is lost
    lab.app.control.revoke("unwanted", terminate=True)
    until(lambda: "unwanted" in ask(lab, worker, "revoked"))
    # When that message is published
    lab.publish("unwanted", ["lane"])
    lab.publish("behind", ["lane"])
    # Then it is buried and does not run
    lab.ended("behind")
    lab.drained()
    assert ids(lab.history, "start") == ["behind"]
    assert lab.dead() == ["unwanted"]
    assert json.loads(lab.problem("unwanted"))["type"] == "Terminated"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("pool", POOLS)
def test_a_terminated_prefetched_message_is_buried(lab: Lab, pool: str, path: str) -> None:
    # Given a worker with one slot that has prefetched messages behind the running one
    names = [f"held:{n}" for n in range(20)]
    for name in ["running", *names]:
        lab.send(name, [name], kwargs={"gate": "open"} if name == "running" else {"gate": "other"}, **PATHS[path])
    lab.worker(pool, 1)
    lab.started("running")
    # When all of these are terminated
    lab.app.control.revoke(names, terminate=True)
    lab.open("open")
    # Then each of them is buried, and none has run to its end
    lab.drained()
    assert set(lab.dead()) == set(names)
    assert ids(lab.history, "end") == ["running"]


@pytest.mark.parametrize("path", PATHS)
def test_a_message_that_started_behind_a_quick_one_is_terminated(lab: Lab, path: str) -> None:
    # Given a child with several messages, of which the first has ended, so that the second one runs
    for n in range(20):
        lab.send(f"m{n}", [f"m{n}"], kwargs={"gate": f"open{min(n, 1)}"}, **PATHS[path])
    lab.worker("prefork", 1)
    lab.started("m0")
    lab.open("open0")
    lab.started("m1")
    # When the second one is terminated, Then it is buried
    lab.app.control.revoke("m1", terminate=True)
    until(lambda: lab.dead() == ["m1"])
    lab.open("open1")
    lab.drained()
    assert "m1" not in ids(lab.history, "end")


def test_a_killed_message_is_buried_and_counts_no_death(lab: Lab) -> None:
    lab.publish("unwanted", ["lane"], gate="never")
    lab.publish("behind", ["lane"])
    lab.worker("prefork", 2)
    lab.started("unwanted")
    lab.app.control.terminate("unwanted", signal="SIGKILL")
    lab.drained()
    assert ids(lab.history, "start") == ["unwanted", "behind"]
    assert lab.dead() == ["unwanted"]
    assert "SIGKILL" in lab.problem("unwanted")
    assert lab.client.hget("lanes:message:unwanted", "died") in (None, b"0")


def test_a_message_that_has_ended_is_not_terminated(lab: Lab) -> None:
    lab.publish("done", ["lane"])
    worker = lab.worker("prefork", 1)
    lab.drained()
    children = worker.children()
    lab.app.control.revoke("done", terminate=True)
    until(lambda: "done" in ask(lab, worker, "revoked"))
    assert worker.children() == children
    assert lab.dead() == []


def test_a_worker_that_starts_after_the_request_buries_the_message(lab: Lab) -> None:
    # Given a worker that got the request to terminate a message that it does not hold
    first = lab.worker()
    ask(lab, first, "ping")  # a broadcast before the worker listens is lost
    lab.app.control.revoke("unwanted", terminate=True)
    until(lambda: any("unwanted" in each for each in (lab.app.control.inspect().revoked() or {}).values()))
    # When another worker starts, and the message is handed to it
    second = lab.worker(mingles=True)
    first.stop()
    lab.publish("unwanted", ["lane"])
    # Then it is buried, as by the first one
    until(lambda: lab.dead() == ["unwanted"])
    problem = json.loads(lab.problem("unwanted"))
    assert problem["type"] == "Terminated"
    assert f"carried out by {second.name}@test" in problem["message"]
    assert "asked by an unnamed program" not in problem["message"]


def test_a_worker_that_starts_after_a_replay_runs_the_message(lab: Lab) -> None:
    # Given a message that was terminated, and replayed when no worker held it
    first = lab.worker("threads", 1)
    lab.publish("unwanted", ["lane"], gate="open")
    lab.started("unwanted")
    lab.app.control.revoke("unwanted", terminate=True)
    until(lambda: lab.dead() == ["unwanted"])
    lab.store.pause("lane", "lane")
    lab.open("open")
    assert lab.store.replay("unwanted")
    # When another worker starts, and it is handed out there
    lab.worker("threads", 1, mingles=True)
    first.stop()
    # Then it runs
    lab.store.resume("lane", "lane")
    lab.drained()
    assert ids(lab.history, "start") == ["unwanted", "unwanted"]
    assert lab.dead() == []
