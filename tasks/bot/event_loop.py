"""One asyncio event loop for all coroutines of this process, in a thread of its own.

Promises that `run` returns when its coroutine has ended: with its result, with what it raised, or, when the caller is
interrupted or the time is over, after the coroutine was cancelled. A forked child makes a loop of its own at its first
call. Does not run under gevent: greenlets would take turns with the loop only when it lets them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

log = logging.getLogger(__name__)

#: Blocking calls of coroutines (asyncio.to_thread, the Bot API) that run at a time; more wait for their turn.
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
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any], limit_s: float | None = None) -> Any:
        """What it returns or raises. Raises OverdueError when that takes longer than `limit_s`."""
        ended = threading.Event()
        future = asyncio.run_coroutine_threadsafe(_told(coroutine, ended), self._loop)
        try:
            return future.result(limit_s)
        except BaseException as error:
            if future.done():
                raise
            _cancel(future, ended)
            if isinstance(error, TimeoutError):
                raise OverdueError(f"cancelled after {limit_s:g} s") from None
            raise

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


async def _told(coroutine: Coroutine[Any, Any, Any], ended: threading.Event) -> Any:
    try:
        return await coroutine
    finally:
        ended.set()


def _cancel(future: Future[Any], ended: threading.Event) -> None:
    end_s = time.monotonic() + TIDY_UP_S
    try:
        future.cancel()
        ended.wait(TIDY_UP_S)
    except BaseException:
        # Prefork's own time limit comes at the same time, as an exception anywhere in here. Who went on without the
        # coroutine would run the update again beside the call that it still makes.
        future.cancel()
        ended.wait(max(0.0, end_s - time.monotonic()))
        raise
