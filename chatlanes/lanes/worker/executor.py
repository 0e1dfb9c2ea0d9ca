"""Threads that make the blocking calls of one event loop's coroutines.

Guarantees that a call starts at once while fewer than MAX_CALLS are running, that its outcome is set on the loop, and
that one wake-up of the loop serves all calls that ended before it. In the standard library's executor, the overhead of
futures, locks and callbacks exceeds the cost of passing the call to a thread.
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

#: Concurrent calls; more are queued.
MAX_CALLS = 128

#: How long the exit of the process waits for running calls.
EXIT_WAIT_S = 5.0

Job = tuple["asyncio.Future[Any]", Callable[[], Any]]


class BlockingExecutor:
    """The executor of one loop, and therefore of one process."""

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
