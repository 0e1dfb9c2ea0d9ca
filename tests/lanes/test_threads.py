"""The threads of `-P threads` do what the standard library's executor does."""

from __future__ import annotations

import threading

import pytest
from celery.concurrency.thread import TaskPool

from tasks.lanes.threads import use_lean_threads
from tests.poller.waiting import until


@pytest.fixture
def pool() -> TaskPool:
    pool = TaskPool(2)
    use_lean_threads(pool)
    pool.start()
    return pool


def test_as_many_run_as_there_are_slots_and_an_error_takes_none(pool: TaskPool) -> None:
    # Given jobs that fail, in more than one way
    for error in (RuntimeError(), SystemExit(3), KeyboardInterrupt()):
        pool.executor.submit(_raise, error)
    # When two more meet each other, and a third is there
    both, told = threading.Barrier(2), []
    for _ in range(2):
        pool.executor.submit(both.wait, 60)
    pool.apply_async(lambda: 7, callback=told.append, accept_callback=lambda pid, at_s: told.append(pid > 0))
    # Then all of them run, on two threads
    until(lambda: told == [True, 7])
    assert pool.info["threads"] == 2
    pool.stop()


def test_its_end_waits_for_what_runs_and_forgets_what_has_not_begun(pool: TaskPool) -> None:
    began, go_on, told = threading.Semaphore(0), threading.Event(), []

    def runs() -> None:
        began.release()
        go_on.wait(60)
        told.append("ran")

    for _ in range(2):
        pool.executor.submit(runs)
    assert began.acquire(timeout=60)
    assert began.acquire(timeout=60)
    pool.executor.submit(told.append, "late")
    threading.Timer(0.05, go_on.set).start()
    pool.stop()
    assert told == ["ran", "ran"]
    assert not any(thread.is_alive() for thread in pool.executor._threads)


def _raise(error: BaseException) -> None:
    raise error
