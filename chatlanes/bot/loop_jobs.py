"""Jobs on the thread of an event loop, for tasks that only wait in coroutines and so need no thread each.

Guarantees that a job written as ordinary code does not block the loop while it waits for a future, a sleep, or a
blocking step, which runs on another thread. Each job runs in its own greenlet, with its own Celery stacks and context
variables. A job must not hold a lock while it waits: the next job of the thread would block on it.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar, cast

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from celery_lanes.runtime import threads

T = TypeVar("T")

#: Concurrent calls; more are queued.
MAX_CALLS = 128

#: How long the exit of the process waits for running calls.
EXIT_WAIT_S = 5.0

Job = tuple["asyncio.Future[Any]", Callable[[], Any]]


class Loop(Protocol):
    """Runs jobs on the thread of an event loop."""

    def begin_job(self, job: Callable[[], object]) -> None:
        """Start the job soon; callable from any thread. The job must not raise."""


class LoopJobs:
    """The jobs of one loop. On the loop's thread, blocking steps and sleeps (runtime/threads.py) switch greenlets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: Separate from the executor of the handlers' calls: slow calls must not delay commands to Redis.
        self.executor = BlockingExecutor(loop)
        self._to_begin: deque[Callable[[], object]] = deque()
        self._is_woken = False
        #: Greenlets without a job, reused: allocating the stack of a new one takes a system call.
        self._idle: list[LoopJob] = []

    def begin(self, job: Callable[[], object]) -> None:
        self._to_begin.append(job)
        self._wake_loop()

    def _wake_loop(self) -> None:
        if self._is_woken:  # one wake-up serves all jobs that are queued before it runs
            return
        self._is_woken = True
        here = getcurrent()
        if isinstance(here, LoopJob) and here.jobs is self:  # the loop is awake
            self.loop.call_soon(self._begin_all)
        else:
            self.loop.call_soon_threadsafe(self._begin_all)

    def run_blocking(self, step: Callable[[], T]) -> T:
        here = getcurrent()
        return here.run_blocking(step) if isinstance(here, LoopJob) else step()

    def sleep(self, seconds: float) -> None:
        here = getcurrent()
        if isinstance(here, LoopJob):
            here.wait(here.jobs.loop.create_future(), seconds)
        else:
            time.sleep(seconds)

    def _begin_all(self) -> None:
        threads.register_thread(self)
        # Reset before the queue is read: a job that is queued from now on wakes the loop again.
        self._is_woken = False
        try:
            for _ in range(len(self._to_begin)):
                job = self._idle.pop() if self._idle else LoopJob(self)
                job.switch(self._to_begin.popleft())
        finally:
            if self._to_begin:  # a job raised; start the others
                self._wake_loop()

    def ended(self, job: LoopJob) -> None:
        self._idle.append(job)


class LoopJob(greenlet):
    """Runs one job after another. Only the loop switches to it; it waits by switching back to the loop."""

    def __init__(self, jobs: LoopJobs) -> None:
        super().__init__(self._work)
        self.jobs = jobs
        self._awaited: asyncio.Future[Any] | None = None

    def _work(self, job: Callable[[], object]) -> None:
        while True:
            Context().run(job)
            del job
            self.jobs.ended(self)
            job = self.parent.switch()

    def wait(self, future: asyncio.Future[Any], within_s: float | None = None) -> bool:
        """Wait for a future. True if it is done within this time."""
        if future.done():
            return True
        self._awaited = future
        timer = None if within_s is None else self.jobs.loop.call_later(max(0.0, within_s), self._resume, future)
        future.add_done_callback(self._resume)
        self.parent.switch()
        if timer is not None:
            timer.cancel()
        if not future.done():
            future.remove_done_callback(self._resume)
        return future.done()

    def run_blocking(self, step: Callable[[], T]) -> T:
        future = self.jobs.executor.call(step)
        self.wait(future)
        return cast(T, future.result())

    def _resume(self, future: asyncio.Future[Any]) -> None:
        # The future and its timer may both have fired in the same iteration of the loop.
        if self._awaited is future:
            self._awaited = None
            self.switch()


class BlockingExecutor:
    """Threads that make the blocking calls of one event loop's coroutines.

    Guarantees that a call starts at once while fewer than MAX_CALLS are running, that its outcome is set on the loop,
    and that one wake-up of the loop serves all calls that ended before it. In the standard library's executor, the
    overhead of futures, locks and callbacks exceeds the cost of passing the call to a thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._ended: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_woken = False
        self._lock = threading.Lock()
        self._running = 0
        self._threads = 0
        atexit.register(self._wait_for_calls)

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run it on another thread, in a copy of the caller's context, so that logs and traces still name the task."""
        future, context = self.loop.create_future(), copy_context()
        self._add_thread()
        self._jobs.put((future, lambda: context.run(function)))
        return future

    def _add_thread(self) -> None:
        """Ensure that there is one thread per running call, up to MAX_CALLS."""
        with self._lock:
            self._running += 1
            if self._running <= self._threads or self._threads >= MAX_CALLS:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="blocking call", daemon=True).start()

    def _work(self) -> None:
        while True:
            future, function = self._jobs.get()
            result: Any = None
            error: BaseException | None = None
            try:
                result = function()
            except StopIteration as stop:  # a future does not accept it
                error = RuntimeError(f"a call raised {stop!r}")
            except BaseException as raised:
                error = raised
            with self._lock:
                self._running -= 1
            self._report(future, result, error)
            del future, function, result, error

    def _wait_for_calls(self) -> None:
        """Called at exit: otherwise the outcome of a running call would be unknown."""
        end_s = time.monotonic() + EXIT_WAIT_S
        while self._running and time.monotonic() < end_s:
            time.sleep(0.01)

    def _report(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._ended.append((future, result, error))
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop is closed, so nothing waits for the outcome
                self.loop.call_soon_threadsafe(self._set_outcomes)

    def _set_outcomes(self) -> None:
        # Reset before the queue is read: a call that ends from now on wakes the loop again.
        self._is_woken = False
        while self._ended:
            future, result, error = self._ended.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


_current: BlockingExecutor | None = None


def blocking_executor() -> BlockingExecutor:
    """The executor of the running loop."""
    global _current
    loop = asyncio.get_running_loop()
    if _current is None or _current.loop is not loop:
        _current = BlockingExecutor(loop)
    return _current
