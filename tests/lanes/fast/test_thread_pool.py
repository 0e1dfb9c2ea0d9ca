"""Jobs on event loops and on threads share the slots of a thread pool."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pytest
from celery.concurrency.thread import TaskPool

from celery_lanes.fast.thread_pool import use_loops
from tests.support.waiting import until

pytestmark = pytest.mark.fast("thread_pool")


@pytest.fixture
def pool() -> TaskPool:
    pool = TaskPool(2)
    use_loops(pool)
    pool.start()
    return pool


def test_a_failed_job_frees_its_slot(pool: TaskPool) -> None:
    # Given jobs that fail with different errors
    for error in (RuntimeError(), SystemExit(3), KeyboardInterrupt()):
        pool.apply_async(_raise, (error,))
    # When two jobs wait for each other, and a third follows
    both, results = threading.Barrier(2), []
    for _ in range(2):
        pool.apply_async(both.wait, (60,))
    pool.apply_async(lambda: 7, callback=results.append, accept_callback=lambda pid, at_s: results.append(pid > 0))
    # Then all of them run, on two threads
    until(lambda: results == [True, 7])
    assert pool.info["threads"] == 2
    pool.stop()


def test_shutdown_waits_for_running_jobs_and_drops_the_rest(pool: TaskPool) -> None:
    started, go_on, results = threading.Semaphore(0), threading.Event(), []

    def runs() -> None:
        started.release()
        go_on.wait(60)
        results.append("ran")

    for _ in range(2):
        pool.apply_async(runs)
    assert started.acquire(timeout=60)
    assert started.acquire(timeout=60)
    pool.apply_async(results.append, ("late",))
    threading.Timer(0.05, go_on.set).start()
    pool.stop()
    assert results == ["ran", "ran"]
    assert not any(thread.is_alive() for thread in pool.executor._threads)


def test_loops_and_threads_share_the_slots(pool: TaskPool) -> None:
    # Given a job on a loop and one on a thread, in both slots, and two loop jobs behind them
    loop, go_on, results = ManualLoop(), threading.Event(), list[str]()

    def on_thread(name: str) -> None:
        go_on.wait(60)
        results.append(name)

    pool.apply_async(results.append, ("loop",), loop=loop)
    pool.apply_async(on_thread, ("thread",))
    for behind in ("second", "third"):
        pool.apply_async(results.append, (behind,), loop=loop)
    assert loop.begun == 1
    # When the one on the loop ends, the next loop job starts
    loop.run()
    assert (results, loop.begun) == (["loop"], 2)
    # And when the one on the thread ends, the last one starts
    go_on.set()
    until(lambda: loop.begun == 3)
    loop.run()
    loop.run()
    assert results == ["loop", "thread", "second", "third"]
    # And stop waits for running loop jobs, and drops those that have not started
    started, end = threading.Event(), threading.Event()
    pool.apply_async(lambda: (started.set(), end.wait(60), results.append("ran")), loop=loop)
    threading.Thread(target=loop.run).start()
    assert started.wait(60)
    for late in ("not started", "without a slot"):
        pool.apply_async(results.append, (late,), loop=loop)
    threading.Timer(0.05, lambda: (loop.run(), end.set())).start()
    pool.stop()
    assert results[4:] == ["ran"]


class ManualLoop:
    """A loop whose jobs run when the test calls `run`."""

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
