"""One asyncio event loop for all coroutines of this process, in its own thread.

`run` returns when its coroutine has ended: with its result, its exception, or, if the caller is interrupted or the time
limit is over, after it was cancelled. The caller blocks its own thread, or no thread if it is a job on the loop's
thread (loop_jobs.py). A forked child creates its own loop at its first call; gevent is not supported.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from greenlet import getcurrent  # type: ignore[import-untyped]

from celery_lanes.runtime.threads import Returned
from chatlanes.bot.loop_jobs import LoopJob, LoopJobs


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


log = logging.getLogger(__name__)

#: Concurrent blocking calls of coroutines (asyncio.to_thread); more are queued. Bot API calls use another executor.
THREADS = 128
#: How long the caller of a cancelled coroutine waits for its cleanup, in seconds.
CLEANUP_S = 5.0


class OverdueError(Exception):
    """A coroutine exceeded its time limit and was cancelled."""


class EventLoop:
    """The event loop of one process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(THREADS, thread_name_prefix="bot"))
        self._jobs = LoopJobs(self._loop)
        self._to_begin: deque[Awaited] = deque()
        self._is_woken = False
        self._is_ending = False
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
        if isinstance(here, LoopJob) and here.jobs is self._jobs:
            if on_interrupt is not None:
                on_interrupt(partial(self._loop.call_soon_threadsafe, self._end_early, begun))
            return self._run_here(begun, here, limit_s)
        try:
            self._to_begin.append(begun)
            if on_interrupt is not None:  # after it was queued: _end_early begins it, so that it can be cancelled
                on_interrupt(partial(self._loop.call_soon_threadsafe, self._end_early, begun))
            if not self._is_woken:  # one wake-up serves all coroutines that are queued before it runs
                self._is_woken = True
                self._loop.call_soon_threadsafe(self._begin_all)
            is_ended = begun.wait(limit_s)
        except BaseException:
            if not begun.is_ended:
                self._cancel(begun)
            raise
        if not is_ended:
            self._cancel(begun)
            raise _overdue(limit_s)
        return begun.outcome()

    def begin_job(self, job: Callable[[], object]) -> None:
        """Run a job on the loop's thread. Its `run` blocks no thread; other blocking calls go through loop_jobs.py."""
        self._jobs.begin(job)

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run the coroutine without waiting for it."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call the function on the loop's thread."""
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """Stop the loop. Tasks that still run are abandoned."""
        self._is_ending = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLEANUP_S)

    def _run_here(self, begun: Awaited, job: LoopJob, limit_s: float | None) -> Any:
        task = begun.begin(self._loop)
        if job.wait(task, limit_s):
            return begun.outcome()
        begun.cancel()
        job.wait(task, CLEANUP_S)
        raise _overdue(limit_s)

    def _begin_all(self) -> None:
        # Reset before the queue is read, so that a coroutine queued from now on wakes the loop again.
        self._is_woken = False
        while self._to_begin:
            self._to_begin.popleft().begin(self._loop)

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
        # The thread that set _is_woken may have been interrupted before it woke the loop; no other thread would do it.
        self._begin_all()
        begun.cancel()

    def _run(self) -> None:
        """Keep the loop running: if it ended, every chat of this process would wait indefinitely."""
        while not self._is_ending:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # asyncio re-raises these out of run_forever
                log.warning("%r in a task of the bot: the event loop continues", error)
            else:
                if not self._is_ending:
                    log.warning("the bot stopped the event loop; it was restarted. To stop a worker, send it SIGTERM")


_loop: EventLoop | None = None
_creation = threading.Lock()


def event_loop() -> EventLoop:
    """The event loop of this process, created at the first call."""
    global _loop, _creation
    if _loop is None or _loop.pid != os.getpid():
        with _creation:
            if _loop is None or _loop.pid != os.getpid():
                _loop = EventLoop()
    return _loop


def _after_fork() -> None:
    """Replace the lock: a child forked while it was held could never create its loop."""
    global _loop, _creation
    _loop, _creation = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _overdue(limit_s: float | None) -> OverdueError:
    return OverdueError(f"cancelled after {limit_s:g} s")
