"""One asyncio event loop for all coroutines of this process, in a thread of its own.

Guarantees that `run` returns when its coroutine has ended: with its result, with what it raised, or, when the caller
is interrupted or the time is over, after the coroutine was cancelled. The caller blocks its own thread or, if it is a
job on the loop's thread, none (loop_jobs.py). A forked child makes a loop of its own at its first call. Not for
gevent.
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
from typing import Any

from greenlet import getcurrent  # type: ignore[import-untyped]

from chatlanes.lanes.runtime.outcome import Returned
from chatlanes.lanes.worker.loop_jobs import LoopJob, LoopJobs


class Awaited(Returned):
    """A coroutine on the loop whose outcome is awaited elsewhere: another thread blocks in `wait`, a job on the loop
    waits for its task. One that is cancelled before its first step has ended, too.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        super().__init__()
        self.is_ended = False
        self._is_cancelled = False
        self._coroutine = coroutine
        self._context = copy_context()  # the caller's: its logs and traces are about this update
        self._task: asyncio.Task[None] | None = None
        self._until_ended = threading.Lock()
        self._until_ended.acquire()

    # -- on the caller's thread

    def wait(self, within_s: float | None) -> bool:
        """Whether it has ended."""
        return self._until_ended.acquire(timeout=-1 if within_s is None else max(0.0, within_s))

    # -- on the loop

    def begin(self, loop: asyncio.AbstractEventLoop) -> asyncio.Task[None]:
        # Not by the loop's factory: an eager one would begin it inside of whoever waits.
        self._task = asyncio.Task(self._run(), loop=loop, context=self._context)
        self._task.add_done_callback(self._never_ran)  # before any of whoever waits for it
        return self._task

    def cancel(self) -> None:
        """Once: a second time would strike what it does to tidy up."""
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
        """One that is cancelled before its first step, by whomever, does nothing at all."""
        if not self.is_ended:
            self._coroutine.close()
            self._error = asyncio.CancelledError()
            self._end()

    def _end(self) -> None:
        self.is_ended = True
        self._until_ended.release()


log = logging.getLogger(__name__)

#: Blocking calls of coroutines (asyncio.to_thread) at a time; more are queued. Bot API calls have another executor.
THREADS = 128
#: How long a cancelled coroutine may tidy up before its caller goes on without it, seconds.
TIDY_UP_S = 5.0


class OverdueError(Exception):
    """A coroutine took longer than it was given, and was cancelled."""


class EventLoop:
    """The loop of one process."""

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

    def run(self, coroutine: Coroutine[Any, Any, Any], limit_s: float | None = None) -> Any:
        """What it returns or raises. Raises OverdueError when that takes longer than `limit_s`."""
        begun, here = Awaited(coroutine), getcurrent()
        if isinstance(here, LoopJob) and here.jobs is self._jobs:
            return self._run_here(begun, here, limit_s)
        try:
            self._to_begin.append(begun)
            if not self._is_woken:  # one wake-up serves all that come before it
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
        """Run it on the loop's thread, where `run` takes no other. What blocks in it goes `apart` (loop_jobs.py)."""
        self._jobs.begin(job)

    def begin(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Let it run; nobody here waits for it."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have the loop's thread call this."""
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """End the loop; what still runs on it is left where it is."""
        self._is_ending = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIDY_UP_S)

    def _run_here(self, begun: Awaited, job: LoopJob, limit_s: float | None) -> Any:
        task = begun.begin(self._loop)
        if job.wait(task, limit_s):
            return begun.outcome()
        begun.cancel()
        job.wait(task, TIDY_UP_S)
        raise _overdue(limit_s)

    def _begin_all(self) -> None:
        # Before it looks: what is put there from now on wakes the loop again.
        self._is_woken = False
        while self._to_begin:
            self._to_begin.popleft().begin(self._loop)

    def _cancel(self, begun: Awaited) -> None:
        """Returns when it has tidied up, or TIDY_UP_S are over."""
        end_s = time.monotonic() + TIDY_UP_S
        try:
            self._loop.call_soon_threadsafe(self._end_early, begun)
            begun.wait(TIDY_UP_S)
        except BaseException:
            # Prefork's own time limit comes at the same time, as an exception anywhere in here. Who went on without the
            # coroutine would run the update again beside the call that it still makes.
            self._loop.call_soon_threadsafe(self._end_early, begun)
            begun.wait(end_s - time.monotonic())
            raise

    def _end_early(self, begun: Awaited) -> None:
        # Whoever was to wake the loop for all may have been interrupted before that: nobody would come after it.
        self._begin_all()
        begun.cancel()

    def _run(self) -> None:
        """A loop that ended would leave every chat of this process waiting for ever."""
        while not self._is_ending:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:  # they pass through a task, and end its loop
                log.warning("%r in a task of the bot: the event loop goes on", error)
            else:
                if not self._is_ending:
                    log.warning("the bot stopped the event loop, which goes on: to stop a worker, send it SIGTERM")


_mine: EventLoop | None = None
_making = threading.Lock()


def event_loop() -> EventLoop:
    """This process's own."""
    global _mine, _making
    if _mine is None or _mine.pid != os.getpid():
        with _making:
            if _mine is None or _mine.pid != os.getpid():
                _mine = EventLoop()
    return _mine


def _after_fork() -> None:
    """A child forked while the lock was held could never make its loop."""
    global _mine, _making
    _mine, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _overdue(limit_s: float | None) -> OverdueError:
    return OverdueError(f"cancelled after {limit_s:g} s")
