"""Celery's time limits of a task; with prefork, also when the worker's main process notices them late."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from celery_lanes.protocol import keys
from celery_lanes.transport import release_5_6
from tests.support.history import ids
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import FAST, ORDINARY_QUEUE
from tests.support.waiting import until

LIMIT_S = 2.0
#: Celery's own pool, and Celery 5.6, replace the child.
KEEPS_CHILD = FAST and not release_5_6.IS_CELERY


@pytest.mark.parametrize("limit", ["soft_time_limit", "time_limit"])
def test_a_limit_that_is_noticed_after_the_end_changes_nothing(lab: Lab, limit: str) -> None:
    # Given a message with a time limit, and another one behind it
    worker = lab.worker("prefork", 1)
    [child] = worker.children()
    lab.send("limited", ["lane"], kwargs={"gate": "open"}, **{limit: LIMIT_S})
    lab.publish("behind", ["lane"])
    lab.started("limited")
    began_s = time.monotonic()
    # When the run ends while the main process does nothing until the limit is over
    worker.signal(signal.SIGSTOP)
    lab.open("open")
    lab.ended("limited")
    until(lambda: time.monotonic() - began_s > LIMIT_S)
    worker.signal(signal.SIGCONT)
    # Then it is settled, and the same child runs the next message
    lab.drained()
    assert ids(lab.history, "end") == ["limited", "behind"]
    assert (lab.dead(), lab.count("handed_out")) == ([], 2)
    if KEEPS_CHILD:
        assert {event.pid for event in lab.history} == {child}
        assert "time limit" not in worker.log


@pytest.mark.every_pool
@pytest.mark.parametrize(("pool", "option"), [("prefork", []), ("gevent", []), ("gevent", [f"--time-limit={LIMIT_S}"])])
def test_a_hard_limit_is_a_death_and_not_the_end(lab: Lab, pool: str, option: list[str]) -> None:
    # Given a message whose handler does not end before its hard limit, and another one behind it
    lab.send("stuck", ["lane"], kwargs={"gate": "open"}, **({} if option else {"time_limit": LIMIT_S}))
    lab.publish("behind", ["lane"])
    worker = lab.worker(pool, 1, *option)
    # When its process was killed, or its greenlet was ended, Then it runs again, and the lane waits for it
    until(lambda: ids(lab.history, "start").count("stuck") >= 2)
    assert ids(lab.history, "end") == []
    assert int(lab.client.hget(keys.message("stuck"), "died") or 0) >= 1
    worker.tells("Hard time limit (2.0s) exceeded for run")
    lab.open("open")
    lab.drained()
    assert ids(lab.history, "end") == ["stuck", "behind"]
    assert lab.dead() == []


@pytest.mark.skipif(not KEEPS_CHILD, reason="Celery's own pool, and Celery 5.6, replace the child")
def test_an_interrupt_of_an_idle_child_changes_nothing(lab: Lab) -> None:
    # Given an idle child
    worker = lab.worker("prefork", 1)
    [child] = worker.children()
    # When the signal of a soft limit arrives
    os.kill(child, signal.SIGUSR1)
    # Then it runs the next message
    lab.publish("next", ["lane"])
    lab.drained()
    assert {event.pid for event in lab.history} == {child}


@pytest.mark.parametrize(
    ("task", "options"),
    [("run", {"kwargs": {"gate": "never"}, "time_limit": LIMIT_S}), ("die_always", {"kwargs": {"gate": "seen"}})],
    ids=["limit", "killed"],
)
def test_a_task_fails_once_with_its_last_death(
    make_lab: LabMaker, redis_url: str, task: str, options: dict[str, Any]
) -> None:
    # Given a task that does not end before its hard limit, or kills its process; with a callback for its error
    lab = make_lab(result_backend=redis_url, task_store_errors_even_if_ignored=True, options={"max_deaths": 2})
    plain = lab.app.tasks["plain"]
    on_error = plain.si().set(queue=ORDINARY_QUEUE, task_id="on-error")
    lab.send("m", ["lane"], task=task, link_error=on_error, **options)
    lab.worker("prefork", 1)
    # When its first run has died, Then it has no result
    until(lambda: ids(lab.history, "start").count("m") == 2)
    assert lab.app.AsyncResult("m").state == "PENDING"
    lab.open("seen")
    # And when it is buried, Then it has failed, and the callback has run once
    until(lambda: lab.dead() == ["m"])
    until(lambda: lab.app.AsyncResult("m").state == "FAILURE")
    plain.apply_async(queue=ORDINARY_QUEUE, task_id="last")
    until(lambda: "last" in ids(lab.history, "end"))
    assert ids(lab.history, "end") == ["on-error", "last"]
    assert ids(lab.history, "start").count("m") == 2
