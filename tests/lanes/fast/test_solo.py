"""The pool of -P solo: received together, run one after the other."""

from __future__ import annotations

from contextlib import suppress

import pytest
from celery import Celery
from celery.concurrency.solo import TaskPool
from celery.exceptions import WorkerShutdown

from chatlanes.lanes.fast.pools import make_lean
from chatlanes.lanes.leases.settler import Settler


@pytest.fixture
def pool() -> TaskPool:
    class Worker:
        app = Celery("solo", set_as_current=False)
        pool = TaskPool(app=app)

    make_lean(Worker, Settler())
    return Worker.pool


def test_one_that_comes_alone_runs_at_once(pool: TaskPool) -> None:
    told = list[str]()
    pool.apply_async(told.append, ("ran",), callback=lambda _: told.append("told"))
    assert told == ["ran", "told"]


def test_those_that_come_together_run_afterwards_in_their_order(pool: TaskPool) -> None:
    told = list[str]()
    with pool.together(lambda: told.append("between")):
        for each in "abc":
            pool.apply_async(told.append, (each,), callback=lambda _: None)
        assert told == []
    assert told == ["a", "between", "b", "between", "c"]


def test_after_an_error_nothing_more_runs(pool: TaskPool) -> None:
    told = list[str]()

    def never() -> None:
        told.append("never")

    # Given an error while they are given
    with suppress(OSError), pool.together(never):
        pool.apply_async(never, callback=lambda _: None)
        raise OSError
    # Or a worker that is told to end while the first one runs
    with suppress(WorkerShutdown), pool.together(never):
        pool.apply_async(end, callback=lambda _: None)
        pool.apply_async(never, callback=lambda _: None)
    # Then what was given is forgotten, and the pool goes on
    with pool.together(never):
        pool.apply_async(told.append, ("next",), callback=lambda _: None)
    assert told == ["next"]


def end() -> None:
    raise WorkerShutdown(0)
