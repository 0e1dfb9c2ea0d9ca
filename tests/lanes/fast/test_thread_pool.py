"""Jobs on loops and on threads share the slots of a thread pool."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest
from celery.concurrency.thread import TaskPool

from chatlanes.lanes.fast.thread_pool import use_loops
from tests.support.waiting import until

pytestmark = pytest.mark.fast("thread_pool")


@pytest.fixture
def pool() -> TaskPool:
    pool = TaskPool(2)
    use_loops(pool)
    pool.start()
    return pool


def test_as_many_run_as_there_are_slots_and_an_error_takes_none(pool: TaskPool) -> None:
    # Given jobs that fail, in more than one way
    for error in (RuntimeError(), SystemExit(3), KeyboardInterrupt()):
        pool.apply_async(_raise, (error,))
    # When two more meet each other, and a third is there
    both, told = threading.Barrier(2), []
    for _ in range(2):
        pool.apply_async(both.wait, (60,))
    pool.apply_async(lambda: 7, callback=told.append, accept_callback=lambda pid, at_s: told.append(pid > 0))
    # Then all of them run, on two threads
    until(lambda: told == [True, 7])
    assert pool.info["threads"] == 2
    pool.stop()


def test_shutdown_waits_for_running_jobs_and_drops_the_rest(pool: TaskPool) -> None:
    began, go_on, told = threading.Semaphore(0), threading.Event(), []

    def runs() -> None:
        began.release()
        go_on.wait(60)
        told.append("ran")

    for _ in range(2):
        pool.apply_async(runs)
    assert began.acquire(timeout=60)
    assert began.acquire(timeout=60)
    pool.apply_async(told.append, ("late",))
    threading.Timer(0.05, go_on.set).start()
    pool.stop()
    assert told == ["ran", "ran"]
    assert not any(thread.is_alive() for thread in pool.executor._threads)


def test_loops_and_threads_share_the_slots(pool: TaskPool) -> None:
    # Given a job on a loop and one on a thread, in both slots, and more of each behind them
    loop, go_on, told = ManualLoop(), threading.Event(), list[str]()

    def on_thread(name: str) -> None:
        go_on.wait(60)
        told.append(name)

    pool.apply_async(told.append, ("loop",), loop=loop)
    pool.apply_async(on_thread, ("thread",))
    for behind in ("second", "third"):
        pool.apply_async(told.append, (behind,), loop=loop)
    assert loop.begun == 1
    # When the one on the loop ends, the next on the loop begins
    loop.run()
    assert (told, loop.begun) == (["loop"], 2)
    # And one behind the other on whatever is free
    go_on.set()
    until(lambda: loop.begun == 3)
    loop.run()
    loop.run()
    assert told == ["loop", "thread", "second", "third"]
    # And the end waits for what runs on the loop; what has not begun never does
    began, end = threading.Event(), threading.Event()
    pool.apply_async(lambda: (began.set(), end.wait(60), told.append("ran")), loop=loop)
    threading.Thread(target=loop.run).start()
    assert began.wait(60)
    for late in ("not begun", "without a slot"):
        pool.apply_async(told.append, (late,), loop=loop)
    threading.Timer(0.05, lambda: (loop.run(), end.set())).start()
    pool.stop()
    assert told[4:] == ["ran"]


class ManualLoop:
    """Jobs run when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self._jobs: deque[Callable[[], object]] = deque()

    def begin_job(self, job: Callable[[], object]) -> None:
        self.begun += 1
        self._jobs.append(job)

    def run(self) -> None:
        self._jobs.popleft()()


def _raise(error: BaseException) -> None:
    raise error
