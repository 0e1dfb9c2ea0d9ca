"""Shutdown: running messages end and are settled, the others are released uncounted, and the next worker continues."""

from __future__ import annotations

import signal

import pytest

from tests.lanes.conftest import POOLS
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker, numbered
from tests.support.waiting import until
from tests.support.worker import Worker

STOPPING = "Warm shutdown"
#: Leases that do not expire during a test.
ENDLESS = {"lease_seconds": 3600}


def test_the_next_worker_continues_where_the_last_stopped(lab: Lab, pool: tuple[str, int]) -> None:
    # Given a worker that prefetches, and in each slot a message that waits at a gate, with two others behind it
    slots = pool[1]
    lab.publish_many(numbered(200, lambda n: [f"quick:{n}"]))
    first = lab.worker(*pool)
    lab.drained()
    running = [f"slow:{n}" for n in range(slots)]
    lab.publish_many({name: [name] for name in running}, gate="open")
    lab.publish_many({f"{name}/{n}": [name] for name in running for n in (1, 2)})
    lab.started(*running)
    # And messages of other lanes, some of which it may have prefetched
    lab.publish_many({f"other:{n}": [f"other:{n}"] for n in range(50)})
    # When it is asked to stop while they run
    first.ask_to_stop()
    first.tells(STOPPING)
    lab.open("open")
    assert first.exit_code() == 0
    # Then the running messages have ended and are settled, nothing is leased, and no death is counted
    history = lab.history
    assert set(running) <= set(ids(history, "end"))
    assert sorted(ids(history, "start")) == sorted(ids(history, "end"))
    assert lab.leases() == []
    assert [lab.state_of(name) for name in ids(history, "end")] == [None] * len(ids(history, "end"))
    assert not [key for key in lab.client.keys("lanes:message:*") if lab.client.hget(key, "died")]
    # And the next worker continues with exactly the next messages
    lab.worker(*pool)
    lab.drained()
    lab.check_once_each()


def active_in(lab: Lab, worker: Worker) -> set[str]:
    """The messages that the main process knows as started; it cannot interrupt others."""
    active = (lab.app.control.inspect(timeout=1).active() or {}).get(f"{worker.name}@test", [])
    return {task["id"] for task in active if task["time_start"]}


@pytest.mark.parametrize(("pool", "slots"), [("prefork", 2), ("gevent", 50)])
def test_a_cold_shutdown_releases_interrupted_messages(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given long leases, and a worker that runs messages
    lab = make_lab(options=ENDLESS)
    lab.publish_many({"a": ["a"], "b": ["b"]}, gate="open")
    worker = lab.worker(pool, slots)
    lab.started("a", "b")
    until(lambda: active_in(lab, worker) == {"a", "b"})
    # When it gets SIGQUIT
    worker.signal(signal.SIGQUIT)
    worker.exit_code()
    # Then it logs no error
    assert "CRITICAL" not in worker.log
    assert "Traceback" not in worker.log
    # And its messages are neither settled nor failed, and no death is counted
    assert (lab.leases(), lab.count("settled"), lab.count("released"), lab.count("retried")) == ([], 0, 2, 0)
    assert [lab.client.hget(f"lanes:message:{name}", "died") for name in ("a", "b")] == [None, None]
    # And the next worker runs them
    lab.open("open")
    lab.worker("solo")
    lab.drained()
    assert sorted(ids(lab.history, "end")) == ["a", "b"]


@pytest.mark.parametrize(("pool", "slots"), [("solo", 1), ("threads", 2)])
def test_a_cold_shutdown_waits_for_uninterruptible_handlers(make_lab: LabMaker, pool: str, slots: int) -> None:
    # Given a worker whose slots are occupied, and a message that waits
    lab = make_lab(options=ENDLESS)
    running = [f"m{n}" for n in range(slots)]
    lab.publish_many({name: [name] for name in running}, gate="open")
    worker = lab.worker(pool, slots)
    lab.started(*running)
    lab.publish("waiting", ["lane"])
    # When it gets SIGQUIT
    worker.signal(signal.SIGQUIT)
    worker.tells("Hitting Ctrl+C again will terminate all running tasks")
    lab.open("open")
    worker.exit_code()
    # Then the running messages have ended and are settled, and the other one is not leased
    assert sorted(ids(lab.history, "end")) == running
    assert (lab.leases(), lab.count("settled"), lab.state_of("waiting")) == ([], slots, "ready")
    assert "Traceback" not in worker.log


def test_a_cold_shutdown_that_hangs_ends_the_worker(make_lab: LabMaker, pool: tuple[str, int]) -> None:
    # Given a worker that runs a message, and Celery's handler of SIGQUIT never returns
    lab = make_lab(options={"lease_seconds": 5}, hangs_in="cancel_active_requests")
    lab.publish_many({"runs": ["lane"], "waits": ["lane"]}, gate="open")
    worker = lab.worker(*pool)
    lab.started("runs")
    # When the worker gets SIGQUIT
    worker.signal(signal.SIGQUIT)
    # Then it ends, in threads as soon as the message has ended
    if pool[0] == "threads":
        worker.tells("the shutdown hangs")
        lab.open("open")
    assert worker.exit_code() == 1
    # And the next worker runs the rest
    lab.open("open")
    lab.worker("solo")
    lab.drained()
    assert ids(lab.history, "end") == ["runs", "waits"]


@pytest.mark.parametrize(("pool", "deploys"), [("solo", 2), ("prefork", 4), ("threads", 2), ("gevent", 2)])
def test_replaced_workers_run_everything_once(lab: Lab, pool: str, deploys: int) -> None:
    # Given more messages than any of these workers can run
    lab.publish_many(numbered(1500, lambda n: [f"lane:{n % 60}"]))
    for deploy in range(1, deploys + 1):
        # When each is stopped under load (a child whose result is not read would wait without limit: lab_app.py)
        worker = lab.worker(pool, POOLS[pool])
        until(lambda now=deploy: len(lab.history) > 150 * now)
        worker.stop()
        # Then it leaves no lease, and every message that it started is settled
        assert lab.leases() == []
        assert lab.pending() == 1500 - len(ids(lab.history, "end"))
    assert lab.pending() > 0, "the last worker was not stopped under load"
    lab.worker("threads", 8)
    lab.drained()
    lab.check_once_each()
    assert lab.count("refused") == 0


def test_workers_join_and_leave_under_load(lab: Lab) -> None:
    # Given a worker under load
    lab.publish_many(numbered(1500, lambda n: [f"lane:{n % 60}", *([f"lane:{n % 7}"] if n % 5 == 0 else [])]))
    lab.worker("prefork", 2)
    # When others start, run messages, and stop
    for pool in ("gevent", "solo"):
        other = lab.worker(pool, POOLS[pool])
        until(lambda name=other.name: any(event.worker == name for event in lab.history) or not lab.pending())
        other.stop()
    lab.drained()
    # Then everything ran once, in order
    lab.check_once_each()
    assert lab.count("refused") == 0
