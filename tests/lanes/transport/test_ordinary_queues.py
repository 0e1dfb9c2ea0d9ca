"""Ordinary queues behave as in stock Celery, in the same worker on the same broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import exceptions

from tests.support.history import ids
from tests.support.lab import Lab, numbered
from tests.support.lab_app import LANE_QUEUES
from tests.support.waiting import until
from tests.support.worker import Worker

#: Celery's setting for tasks whose process has died.
REQUEUED = {"task_reject_on_worker_lost": True}


def ask(lab: Lab, worker: Worker, what: str, *arguments: Any) -> Any:
    """The worker's reply to `celery inspect`."""
    inspect = lab.app.control.inspect(destination=[f"{worker.name}@test"], timeout=5, limit=1)

    def reply() -> Any:
        try:
            return getattr(inspect, what)(*arguments)
        except exceptions.ConnectionError:  # a pooled connection that an earlier test has cut
            return None

    return until(reply)[f"{worker.name}@test"]


def control(lab: Lab, worker: Worker, command: Callable[..., Any], *arguments: Any) -> Any:
    """The worker's reply to `celery control`. It listens only a moment after it has logged that it is ready."""
    replies = until(lambda: command(*arguments, destination=[f"{worker.name}@test"], reply=True, timeout=5, limit=1))
    return replies[0][f"{worker.name}@test"]


def test_ordinary_tasks_and_lanes_run_in_one_worker(lab: Lab, pool: tuple[str, int]) -> None:
    # Given lanes with messages, and tasks without lanes: immediate ones, a delayed one, and one that retries
    lab.publish_many(numbered(300, lambda n: [f"lane:{n % 20}"]))
    plain = [f"plain:{n}" for n in range(40)]
    for task_id in plain:
        lab.publish_unordered("plain", task_id)
    lab.publish_unordered("plain", "later", countdown=0.5)
    lab.publish_unordered("fail_unordered", "retries", kwargs={"times": 2})
    # When one worker runs them all
    worker = lab.worker(*pool, mingles=True)
    lab.drained()
    lab.ended(*plain, "later", "retries")
    worker.stop()
    # Then each ran as often as expected, and stock Celery's keys are empty, too
    assert sorted(ids(lab.history, "end")) == sorted([*lab.lanes, *plain, "later", "retries"])
    assert ids(lab.history, "start").count("retries") == 3
    assert [lab.client.llen("celery"), lab.client.hlen("unacked")] == [0, 0]


def test_ordinary_tasks_occupy_slots(lab: Lab) -> None:
    # Given a worker whose two slots run tasks without lanes
    lab.publish_unordered("plain", "p1", kwargs={"gate": "open"})
    lab.publish_unordered("plain", "p2", kwargs={"gate": "open"})
    lab.worker("threads", 2)
    lab.started("p1", "p2")
    # When a message becomes ready, another worker runs it
    lab.publish("m", ["lane"])
    lab.worker("solo")
    lab.ended("m")
    lab.open("open")
    assert [event.worker for event in lab.history if event.id == "m"] == ["w2", "w2"]
    assert lab.count("handed_out") == 1


@pytest.mark.parametrize(("pool", "slots"), [("prefork", 2), ("gevent", 5)])
def test_celery_inspect_and_control_work_with_lanes(lab: Lab, pool: str, slots: int) -> None:
    # Given a worker that runs a message
    lab.publish("running", ["lane"], gate="open")
    worker = lab.worker(pool, slots)
    lab.started("running")
    # Then `celery inspect` shows it
    assert ask(lab, worker, "ping") == {"ok": "pong"}
    [active] = ask(lab, worker, "active")
    assert (active["id"], active["name"]) == ("running", "run")
    assert ask(lab, worker, "stats")["broker"]["transport"] == "redis"
    assert [each["id"] for each in ask(lab, worker, "reserved") if each["id"] != "running"] == []
    assert set(LANE_QUEUES) <= {queue["name"] for queue in ask(lab, worker, "active_queues")}
    # When the worker stops consuming a queue, messages of that queue wait, and others do not
    assert "ok" in control(lab, worker, lab.app.control.cancel_consumer, "orders.1")
    until(lambda: "orders.1" not in {queue["name"] for queue in ask(lab, worker, "active_queues")})
    lab.publish("waits", ["x"], queue="orders.1")
    lab.publish("runs", ["y"], queue="orders.2")
    lab.ended("runs")
    assert lab.state_of("waits") == "ready"
    # And when it consumes the queue again, they run
    assert "ok" in control(lab, worker, lab.app.control.add_consumer, "orders.1")
    lab.ended("waits")
    lab.open("open")
    lab.drained()
    lab.check_once_each()


def test_cancelling_a_queue_releases_unstarted_messages(lab: Lab) -> None:
    lab.publish("running", ["lane"], queue="orders.1", gate="open")
    lab.publish("behind", ["lane"], queue="orders.1")
    worker = lab.worker("prefork", 2)
    lab.started("running")
    for queue in LANE_QUEUES:  # all of them: it no longer fetches
        control(lab, worker, lab.app.control.cancel_consumer, queue)
    lab.open("open")
    until(lambda: lab.state_of("running") is None)
    assert (lab.state_of("behind"), lab.leases()) == ("ready", [])
    control(lab, worker, lab.app.control.add_consumer, "orders.1")
    lab.drained()
    lab.check_once_each()


def test_a_revoked_message_is_dropped_and_its_lane_continues(lab: Lab) -> None:
    worker = lab.worker("prefork", 2)
    control(lab, worker, lab.app.control.revoke, "unwanted")
    lab.publish("unwanted", ["lane"])
    lab.publish("behind", ["lane"])
    lab.drained()
    assert ids(lab.history, "start") == ["behind"]
    assert lab.dead() == []


def test_an_expired_message_is_dropped(lab: Lab) -> None:
    lab.send("old", ["lane"], expires=-10)
    lab.publish("behind", ["lane"])
    lab.worker("threads", 2)
    lab.drained()
    assert ids(lab.history, "start") == ["behind"]
    assert lab.dead() == []


def test_a_revoke_before_a_replay_does_not_apply(lab: Lab) -> None:
    # Given a message that was revoked, and buried before the revoke dropped it
    worker = lab.worker("solo")
    control(lab, worker, lab.app.control.revoke, "m")
    control(lab, worker, lab.app.control.cancel_consumer, "orders.0")
    lab.publish("m", ["lane"])
    assert lab.store.purge("orders.0") == 1
    # When it is replayed
    assert lab.store.replay("m")
    control(lab, worker, lab.app.control.add_consumer, "orders.0")
    # Then it runs
    lab.ended("m")
    lab.drained()
    # And a revoke after the replay applies
    control(lab, worker, lab.app.control.cancel_consumer, "orders.0")
    lab.publish("m", ["lane"])
    lab.store.purge("orders.0")
    lab.store.replay("m")
    control(lab, worker, lab.app.control.revoke, "m")
    control(lab, worker, lab.app.control.add_consumer, "orders.0")
    lab.drained()
    assert ids(lab.history, "start") == ["m"]


@pytest.mark.parametrize(
    ("settings", "runs"), [({}, 1), ({"task_acks_late": True}, 1), ({"task_acks_late": True, **REQUEUED}, 3)]
)
def test_only_the_settings_say_whether_an_ordinary_task_runs_again(
    lab: Lab, settings: dict[str, Any], runs: int
) -> None:
    # Given an ordinary task that kills its process, and one in a lane whose attributes say that it does not run again
    lost = {"acks_late": False, "reject_on_worker_lost": False, "acks_on_timeout": True}
    lab.publish_unordered("die_always", "p")
    lab.publish("m", ["lane"], task="die", how="killed", times=2)
    worker = lab.worker("prefork", 2, task_annotations={"die": lost}, **settings)
    # When the first one has run as often as its settings say
    if runs > 1:
        until(lambda: ids(lab.history, "start").count("p") >= runs)
    else:
        until(lambda: worker.log.count("Task handler raised error: WorkerLostError") >= 3)  # one, and two of the lane
        lab.publish_unordered("plain", "after")
        lab.ended("after")
    # Then the one of the lane has run to its end
    lab.ended("m")
    lab.drained()
    worker.kill_all()
    assert ids(lab.history, "start").count("m") == 3
    assert runs > 1 or ids(lab.history, "start").count("p") == 1
