"""A run that Redis has refused is not settled: after a failover, the answer may be that of a replica that is behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from celery import chord

import celery_lanes as lanes
from celery_lanes.embedded_server import Server, start_server
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import LANE_QUEUES, ORDINARY_QUEUE
from tests.support.waiting import until

POOLS = [("prefork", 2), ("threads", 2), ("gevent", 2), ("solo", 1)]
IS_OVER = "lanes: the lease of first is over; another worker may run it"
TALK = lanes.Group("talk", quiet_ms=0, max_wait_ms=60_000, most=20, steers=True)


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Server]:
    """A server that has no lease of the lab."""
    with start_server(tmp_path / "behind") as server:
        yield server


@pytest.mark.parametrize(("pool", "slots"), POOLS)
@pytest.mark.parametrize("how", ["check", "call", "swallow", "hide"])
def test_a_message_runs_again_after_a_wrong_refusal(lab: Lab, behind: Server, pool: str, slots: int, how: str) -> None:
    # Given a message whose first run asks a server that does not have its lease, and one behind it
    lab.publish("first", ["a"], task="ask_elsewhere", url=behind.url, how=how)
    lab.publish("second", ["a"])
    # When a worker runs them
    worker = lab.worker(pool, slots)
    lab.drained()
    # Then the first one runs again before the second one, no attempt is counted, and the loss is logged once
    events = [(event.what, event.id) for event in lab.history]
    assert events == [
        ("start", "first"),
        ("start", "first"),
        ("end", "first"),
        ("start", "second"),
        ("end", "second"),
    ]
    assert (lab.count("released"), lab.count("retried"), lab.count("buried")) == (1, 0, 0)
    assert worker.log.count(IS_OVER) == 1


@pytest.mark.parametrize(("pool", "slots"), POOLS)
@pytest.mark.parametrize("how", ["check", "swallow", "hide"])
def test_a_refused_run_has_no_result(
    make_lab: LabMaker, redis_url: str, behind: Server, pool: str, slots: int, how: str
) -> None:
    # Given the task of a chord whose first run is refused
    lab = make_lab(result_backend=redis_url)
    refused = lab.app.tasks["ask_elsewhere"].si(behind.url, how).set(task_id="first", ignore_result=False)
    refused.set(queue=LANE_QUEUES[0], headers=lanes.headers(["a"]))
    refused.link_error(lab.app.tasks["plain"].si().set(task_id="error", queue=ORDINARY_QUEUE))
    other = lab.app.tasks["run"].si().set(task_id="other", ignore_result=False)
    other.set(queue=LANE_QUEUES[0], headers=lanes.headers(["b"]))
    # When it runs again
    worker = lab.worker(pool, slots)
    chord([refused, other])(lab.app.tasks["plain"].si().set(task_id="body", queue=ORDINARY_QUEUE))
    # Then that run has the result, the body follows it, and nothing was published before
    until(lambda: "body" in ids(lab.history, "end"))
    assert sorted(ids(lab.history, "end")) == ["body", "first", "other"]
    assert ids(lab.history, "start").count("first") == 2
    until(lambda: worker.log.count("[first] ignored") + worker.log.count("[first] succeeded") == 2)
    assert worker.log.count("[first] ignored") == 1


@pytest.mark.parametrize(("pool", "slots"), POOLS)
def test_a_refusal_after_the_commit_changes_nothing(
    make_lab: LabMaker, redis_url: str, behind: Server, pool: str, slots: int
) -> None:
    lab = make_lab(result_backend=redis_url)
    worker = lab.worker(pool, slots)
    lab.send("first", ["a"], task="ask_elsewhere", ignore_result=False, kwargs={"url": behind.url, "how": "after"})
    until(lambda: lab.app.AsyncResult("first").state == "SUCCESS")
    lab.drained()
    assert ids(lab.history, "start") == ids(lab.history, "end") == ["first"]
    assert (lab.count("settled"), lab.count("released")) == (1, 0)
    assert IS_OVER not in worker.log


def test_what_a_refused_run_could_not_leave_is_not_lost(lab: Lab, behind: Server) -> None:
    # Given a run that has taken two messages in different places, and is killed
    def say(name: str, **kwargs: str | bool) -> None:
        lab.send(name, ["talk"], task="steer", group=TALK, kwargs={"name": name, **kwargs})

    lab.worker("prefork", 2)
    say("a", gate="open", elsewhere=behind.url)
    lab.started("a")
    say("b", once=True)
    until(lambda: ids(lab.history, "taken") == ["b@0"])
    say("c", dies=True)
    until(lambda: ids(lab.history, "taken") == ["b@0", "c@1", "b@0"])
    # When the next run has not reached the second one, and is refused when it leaves it
    lab.open("open")
    # Then it runs again, asks for none of them now, and both are the next run
    lab.drained()
    assert ids(lab.history, "end") == ["a+b", "a", "b+c"]
