"""Threads that make the blocking calls of one event loop's coroutines.

Guarantees that a call starts at once while fewer than MOST are running, that its outcome arrives on the loop, and that
one wake-up of the loop serves all calls that ended before it. The standard library's executor spends more on its own
futures, locks and callbacks than on the hand-over.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

#: Calls at a time; more are queued.
MOST = 128

#: How long the end of the process waits for running calls.
LAST_CALLS_S = 5.0

Job = tuple["asyncio.Future[Any]", Callable[[], Any]]


class BlockingExecutor:
    """The executor of one loop, and so of one process."""

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
        """Run it on another thread, in a copy of the caller's context, so that log lines and traces keep their task."""
        future, context = self.loop.create_future(), copy_context()
        self._add_thread()
        self._jobs.put((future, lambda: context.run(function)))
        return future

    def _add_thread(self) -> None:
        """One thread for each running call."""
        with self._lock:
            self._running += 1
            if self._running <= self._threads or self._threads >= MOST:
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
            except StopIteration as stop:  # a future refuses it
                error = RuntimeError(f"a call raised {stop!r}")
            except BaseException as raised:
                error = raised
            with self._lock:
                self._running -= 1
            self._report(future, result, error)
            del future, function, result, error

    def _wait_for_calls(self) -> None:
        """At the end of the process: otherwise the outcome of a running call would be unknown."""
        end_s = time.monotonic() + LAST_CALLS_S
        while self._running and time.monotonic() < end_s:
            time.sleep(0.01)

    def _report(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._ended.append((future, result, error))
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended, and nothing waits
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
