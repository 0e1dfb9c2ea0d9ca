"""A coroutine on the event loop that somebody waits for who is no coroutine.

Promises its result, or what it raised, whatever that is; and that one which is cancelled before its first step has
ended, too. Begins nothing by itself, and knows no limit: event_loop.py does.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

from chatlanes.lanes.runtime.outcome import Returned


class Awaited(Returned):
    """Another thread waits with `wait`; a lock is all that it takes to wake that up. An errand waits for its task."""

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
