"""Threads that make the blocking calls of coroutines, such as those of the Bot API.

Promises that a call is under way at once as long as there are fewer than MOST, that its outcome arrives on the loop of
whoever asked, and that one wake-up of the loop serves all that ended before it. Made for one loop, and so for one
process; what an executor does besides (futures of its own, their locks and callbacks) took more than the hand-over.
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

#: Calls at a time; more wait for their turn.
MOST = 128

#: How long the end of the process waits for calls.
LAST_CALLS_S = 5.0

Job = tuple["asyncio.Future[Any]", Callable[[], Any]]


class Hands:
    """Of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._ended: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._is_woken = False
        self._lock = threading.Lock()
        self._under_way = 0
        self._threads = 0
        atexit.register(self._wait)

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """On another thread, in the caller's context: its logs and its traces belong to its update there, too."""
        future, context = self.loop.create_future(), copy_context()
        self._make_room()
        self._jobs.put((future, lambda: context.run(function)))
        return future

    def _make_room(self) -> None:
        """A thread for each call that is under way."""
        with self._lock:
            self._under_way += 1
            if self._under_way <= self._threads or self._threads >= MOST:
                return
            self._threads += 1
        threading.Thread(target=self._work, name="bot", daemon=True).start()

    def _work(self) -> None:
        while True:
            future, function = self._jobs.get()
            result: Any = None
            error: BaseException | None = None
            try:
                result = function()
            except StopIteration as stop:  # no future takes it
                error = RuntimeError(f"a call raised {stop!r}")
            except BaseException as raised:
                error = raised
            with self._lock:
                self._under_way -= 1
            self._tell(future, result, error)
            del future, function, result, error

    def _wait(self) -> None:
        """At the end of the process: what is under way would leave an outcome that nobody knows."""
        end_s = time.monotonic() + LAST_CALLS_S
        while self._under_way and time.monotonic() < end_s:
            time.sleep(0.01)

    def _tell(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._ended.append((future, result, error))
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # the loop has ended, and nobody waits
                self.loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        # Before it looks: what ends from now on wakes the loop again.
        self._is_woken = False
        while self._ended:
            future, result, error = self._ended.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)


_mine: Hands | None = None


def hands() -> Hands:
    """Those of the running loop."""
    global _mine
    loop = asyncio.get_running_loop()
    if _mine is None or _mine.loop is not loop:
        _mine = Hands(loop)
    return _mine
