"""One asyncio event loop for all coroutines of this process, in its own thread.

`run` returns when its coroutine has ended: with its result, its exception, or after it was cancelled. The caller blocks
its own thread, or no thread if it is a job. A forked child creates its own loop at its first call; gevent is not
supported.

A job is ordinary code that does not block the loop while it waits for a future, a sleep, or a blocking step, which runs
on another thread. It runs in its own greenlet, with its own Celery stacks and context variables, and must not hold a
lock while it waits: the next job of the thread would block on it.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from celery_lanes.runtime import threads
from celery_lanes.runtime.threads import Returned

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Concurrent calls; more are queued.
MAX_CALLS = 128

#: How long the exit of the process waits for running calls.
EXIT_WAIT_S = 5.0

Job = tuple["asyncio.Future[Any]", Callable[[], Any]]


class Inbox:
    """Items for the thread of a loop, each of which is given to `take` there. One wake-up of the loop serves all items
    that are put before it runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[Any], object]) -> None:
        self._loop, self._take = loop, take
        self._items: deque[Any] = deque()
        self._is_woken = False

    def put(self, item: object) -> None:
        self._items.append(item)
        self._wake()

    def empty(self) -> None:
        # Reset before the items are read: one that is put from now on wakes the loop again.
        self._is_woken = False
        try:
            for _ in range(len(self._items)):
                self._take(self._items.popleft())
        finally:
            if self._items:  # `take` raised, or has put one
                self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            is_awake = asyncio._get_running_loop() is self._loop
            with suppress(RuntimeError):  # the loop is closed, so nothing waits for the item
                (self._loop.call_soon if is_awake else self._loop.call_soon_threadsafe)(self.empty)


class LoopJobs:
    """The jobs of one loop. On the loop's thread, blocking steps and sleeps (runtime/threads.py) switch greenlets."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: Separate from the executor of the handlers' calls: slow calls must not delay commands to Redis.
        self.executor = BlockingExecutor(loop)
        #: Greenlets without a job, reused: allocating the stack of a new one takes a system call.
        self._idle: list[LoopJob] = []
        self.begin = Inbox(loop, self._begin).put

    def _begin(self, job: Callable[[], object]) -> None:
        threads.register_thread(self)
        (self._idle.pop() if self._idle else LoopJob(self)).switch(job)

    def run_blocking(self, step: Callable[[], T]) -> T:
        here = getcurrent()
        return here.run_blocking(step) if isinstance(here, LoopJob) else step()

    def sleep(self, seconds: float) -> None:
        here = getcurrent()
        if isinstance(here, LoopJob):
            here.wait(here.jobs.loop.create_future(), seconds)
        else:
            time.sleep(seconds)

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
        self._outcomes = Inbox(loop, _set_outcome)
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
            self._outcomes.put((future, result, error))
            del future, function, result, error

    def _wait_for_calls(self) -> None:
        """Called at exit: otherwise the outcome of a running call would be unknown."""
        end_s = time.monotonic() + EXIT_WAIT_S
        while self._running and time.monotonic() < end_s:
            time.sleep(0.01)


def _set_outcome(ended: tuple[asyncio.Future[Any], Any, BaseException | None]) -> None:
    future, result, error = ended
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


_current: BlockingExecutor | None = None


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def is_in_coroutine() -> bool:
    """True in a coroutine; False in a plain handler that runs as a job on the event loop's thread."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


async def finished(call: asyncio.Future[T]) -> T:
    """The result of a call on another thread. If the caller is cancelled, it still waits for the end of the call;
    otherwise the update could run again meanwhile and make the call twice.
    """
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        while not call.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([call])
        raise


def blocking_executor() -> BlockingExecutor:
    """The executor of the running loop."""
    global _current
    loop = asyncio.get_running_loop()
    if _current is None or _current.loop is not loop:
        _current = BlockingExecutor(loop)
    return _current


class Awaited(Returned):
    """A coroutine on the loop whose caller waits elsewhere: another thread blocks in `wait`, a job on the loop waits
    for its task. It also counts as ended if it is cancelled before its first step.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self.is_ended = False
        self._is_cancelled = False
        self._coroutine = coroutine
        self._context = copy_context()  # the caller's context, so that logs and traces name its update
        self._task: asyncio.Task[None] | None = None
        self._until_ended = threading.Lock()
        self._until_ended.acquire()

    # -- on the caller's thread

    def wait(self, within_s: float | None) -> bool:
        """Wait for its end; True if it has ended."""
        return self._until_ended.acquire(timeout=-1 if within_s is None else max(0.0, within_s))

    # -- on the loop

    def begin(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        # Not with the loop's task factory: an eager factory would run its first step in the waiting job.
        self._task = asyncio.Task(self._run(), loop=loop, context=self._context)
        self._task.add_done_callback(self._never_ran)  # registered before the callbacks of those who wait for it
        return self._task

    def cancel(self) -> None:
        """Cancel it once; a second cancellation would interrupt its cleanup."""
        if self._task is None:
            self._never_ran()
        elif not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self._result = await self._coroutine
        except BaseException as error:
            self._error = error
        self._end()

    def _never_ran(self, _: object = None) -> None:
        """End a coroutine that was cancelled before its first step."""
        if not self.is_ended:
            self._coroutine.close()
            self._error = asyncio.CancelledError()
            self._end()

    def _end(self) -> None:
        self.is_ended = True
        self._until_ended.release()


#: Concurrent blocking calls of coroutines (asyncio.to_thread); more are queued. Bot API calls use another executor.
THREADS = 128
#: How long the caller of a cancelled coroutine waits for its cleanup, in seconds.
CLEANUP_S = 5.0


class OverdueError(Exception):
    """A coroutine exceeded its time limit and was cancelled."""


class EventLoop:
    """The event loop of one process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="bot"))
        self._jobs = LoopJobs(self._loop)
        self._inbox = Inbox(self._loop, lambda begun: begun.is_ended or begun.begin(self._loop))
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)
        self._thread.start()

    def run(
        self,
        coroutine: Coroutine[Any, Any, Any],
        limit_s: float | None = None,
        on_interrupt: Callable[[Callable[[], object]], None] | None = None,
    ) -> Any:
        """Run the coroutine; returns its result or raises its exception. Raises OverdueError after `limit_s`.

        `on_interrupt` is given a function that cancels the coroutine and that any thread may call.
        """
        begun, here = Awaited(coroutine), getcurrent()
        if on_interrupt is not None:
            on_interrupt(partial(self._loop.call_soon_threadsafe, self._end_early, begun))
        if isinstance(here, LoopJob) and here.jobs is self._jobs:
            return self._run_here(begun, here, limit_s)
        try:
            self._inbox.put(begun)
            is_ended = begun.wait(limit_s)
        except BaseException:
            if not begun.is_ended:
                self._cancel(begun)
            raise
        if not is_ended:
            self._cancel(begun)
            raise OverdueError(f"cancelled after {limit_s:g} s")
        return begun.outcome()

    def begin_job(self, job: Callable[[], object]) -> None:
        """Run a job on the loop's thread. Its `run` blocks no thread; other blocking calls use `blocking_executor`."""
        self._jobs.begin(job)

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run the coroutine without waiting for it."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run_here(self, begun: Awaited, job: LoopJob, limit_s: float | None) -> Any:
        task = begun.begin(self._loop)
        if job.wait(task, limit_s):
            return begun.outcome()
        begun.cancel()
        job.wait(task, CLEANUP_S)
        raise OverdueError(f"cancelled after {limit_s:g} s")

    def _cancel(self, begun: Awaited) -> None:
        """Cancel it, and return when its cleanup has ended or CLEANUP_S are over."""
        end_s = time.monotonic() + CLEANUP_S
        try:
            self._loop.call_soon_threadsafe(self._end_early, begun)
            begun.wait(CLEANUP_S)
        except BaseException:
            # Prefork's time limit may raise here at any point. Without the wait below, the update could run again
            # while the coroutine still makes a call.
            self._loop.call_soon_threadsafe(self._end_early, begun)
            begun.wait(end_s - time.monotonic())
            raise

    def _end_early(self, begun: Awaited) -> None:
        # The thread that queued `begun` may have been interrupted before it woke the loop; no other thread would.
        self._inbox.empty()
        begun.cancel()

    def _run(self) -> None:
        """Keep the loop running: if it ended, every chat of this process would wait indefinitely."""
        while True:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # asyncio re-raises these out of run_forever
                log.warning("%r in a task of the bot: the event loop continues", error)
            else:
                log.warning("the bot stopped the event loop; it was restarted. To stop a worker, send it SIGTERM")


_loop: EventLoop | None = None
_creation = threading.Lock()


def event_loop() -> EventLoop:
    """The event loop of this process, created at the first call."""
    global _loop, _creation
    if _loop is None:
        with _creation:
            if _loop is None:
                _loop = EventLoop()
    return _loop


def _after_fork() -> None:
    """A child has no thread of the loop. The lock may have been held during the fork."""
    global _loop, _creation
    _loop, _creation = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
