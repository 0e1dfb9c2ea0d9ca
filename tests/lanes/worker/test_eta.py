"""eta and countdown: a message joins its lanes when it is due, in every pool, and is not in a worker until then."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery

import celery_lanes as lanes
from celery_lanes.protocol import keys
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker, batch, needs_batches
from tests.support.lab_app import LANE_QUEUES
from tests.support.waiting import until


def redis_ms(lab: Lab) -> int:
    seconds, micros = lab.client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def timers(lab: Lab) -> list[str]:
    return [timer.id for timer in lab.store.next_timers()]


def due_ms(lab: Lab, message_id: str) -> float:
    score = lab.client.zscore(keys.TIMERS, keys.timer(f"task {message_id}", "eta"))
    assert score is not None
    return float(score)


def make_due(lab: Lab, message_id: str) -> None:
    lab.client.zadd(keys.TIMERS, {keys.timer(f"task {message_id}", "eta"): 1})


def test_an_idle_worker_runs_it_when_it_is_due(make_lab: LabMaker, pool: tuple[str, int]) -> None:
    # Given an idle worker that neither polls nor sweeps without a reason
    lab = make_lab(only_wakeups=True, sweeps=False)
    lab.worker(*pool)
    lab.send("far", ["lane"], countdown=86_400)
    # When a message is published for a time that is near
    lab.send("a", ["lane"], countdown=1.0)
    due = due_ms(lab, "a")
    assert lab.state_of("a") is None
    # Then it starts at that time, and the other one waits
    lab.started("a")
    assert redis_ms(lab) >= due
    lab.drained()
    assert timers(lab) == ["far"]


def test_waiting_messages_cost_an_idle_worker_nothing(make_lab: LabMaker) -> None:
    lab = make_lab(only_wakeups=True, sweeps=False)
    lab.worker("threads", 8)
    for n in range(5):
        lab.send(f"far{n}", ["lane"], countdown=3_600 + n)
    until(lambda: not lab.client.exists(*map(keys.bell, LANE_QUEUES)))
    until(lambda: is_idle(lab))
    before = scripts_run(lab)
    lab.send("a", ["lane"], countdown=1.0)
    lab.ended("a")
    # To schedule it, to learn when it is due, to fire it, to run and settle it, and to see that nothing is left
    assert scripts_run(lab) - before <= 10


def scripts_run(lab: Lab) -> int:
    return int(lab.client.info("commandstats")["cmdstat_evalsha"]["calls"])


def is_idle(lab: Lab) -> bool:
    """True if no script ran for half a second: the worker has answered the last bell."""
    before = scripts_run(lab)
    time.sleep(0.5)
    return scripts_run(lab) == before


def test_a_later_message_overtakes_nobody(lab: Lab) -> None:
    lab.worker("threads", 8)
    lab.publish("first", ["lane"], gate="open")
    lab.started("first")
    lab.send("later", ["lane"], countdown=0.2)
    lab.publish("second", ["lane"])
    # It is in no lane until it is due
    assert lab.client.zrange(keys.lane("lane"), 0, -1) == [b"first", b"second"]
    until(lambda: lab.state_of("later") == "waiting")
    lab.publish("third", ["lane"])
    lab.open("open")
    lab.drained()
    assert ids(lab.history, "end") == ["first", "second", "later", "third"]


def test_it_survives_the_worker(make_lab: LabMaker) -> None:
    # Given a worker that is killed while one message waits for its time and another one runs
    lab = make_lab(options={"lease_seconds": 1})
    worker = lab.worker("prefork", 2)
    lab.send("waits", ["lane"], countdown=3_600)
    lab.send("runs", ["lane"], countdown=0.1, kwargs={"gate": "open"})
    lab.started("runs")
    worker.kill_all()
    # When its time has come, then another worker runs both, in their order
    make_due(lab, "waits")
    lab.open("open")
    lab.worker("prefork", 2)
    lab.ended("waits", "runs")
    lab.drained()
    assert ids(lab.history, "end") == ["runs", "waits"]


def test_the_task_has_no_eta_so_that_celery_does_not_keep_it(lab: Lab) -> None:
    when = datetime.now(UTC) + timedelta(hours=1)
    lab.send("a", ["lane"], eta=when)
    assert due_ms(lab, "a") == pytest.approx(when.timestamp() * 1000, abs=1)
    [timer] = lab.store.timers("task a")
    assert (timer.id, timer.queue, timer.lanes) == ("a", LANE_QUEUES[0], ["lane"])
    assert b"eta" not in timer.stored


def test_an_eta_without_a_time_zone_is_utc(lab: Lab) -> None:
    lab.send("a", ["lane"], eta="2126-01-01T00:00:00")
    assert due_ms(lab, "a") == datetime(2126, 1, 1, tzinfo=UTC).timestamp() * 1000


def test_a_second_publish_is_dropped(lab: Lab) -> None:
    run = lab.app.tasks["run"]
    for task_id in ("a", "b"):
        headers = lanes.headers(["lane"], once=("orders", 7))
        run.apply_async(task_id=task_id, queue=LANE_QUEUES[0], headers=headers, countdown=3_600)
    assert timers(lab) == ["a"]


def test_a_message_that_expires_before_its_time_does_not_run(lab: Lab) -> None:
    lab.send("expires", ["lane"], countdown=0.2, expires=0.1)
    lab.send("lasts", ["lane"], countdown=0.2, expires=3_600)
    lab.worker("threads", 8)
    lab.ended("lasts")
    lab.drained()
    assert ids(lab.history, "start") == ["lasts"]


def with_lanes(lab: Lab) -> Celery:
    return lab.app


def without_lanes(lab: Lab) -> Celery:
    """A program whose app has no lanes, such as Flower on its own: a worker removes the timer."""
    lab.worker("threads", 8)
    return Celery(broker=lab.settings["url"], set_as_current=False)


@pytest.mark.parametrize("terminate", [False, True])
@pytest.mark.parametrize("app_of", [with_lanes, without_lanes])
def test_revoke_removes_it(lab: Lab, app_of: Callable[[Lab], Celery], terminate: bool) -> None:
    app = app_of(lab)
    for name in "abc":
        lab.send(name, ["lane"], countdown=3_600)
    app.control.revoke("a", terminate=terminate)
    app.control.revoke(["b", "none"], terminate=terminate)
    until(lambda: timers(lab) == ["c"])
    assert lab.count("cancelled") == 2


@needs_batches
def test_a_batch_may_have_an_eta(lab: Lab) -> None:
    with lab.app.producer_pool.acquire(block=True) as producer, batch(producer):
        lab.send("a", ["lane"], producer=producer, countdown=3_600)
        lab.send("b", ["lane"], producer=producer)
        assert (timers(lab), lab.pending()) == ([], 0)
    assert (timers(lab), lab.pending()) == (["a"], 1)
