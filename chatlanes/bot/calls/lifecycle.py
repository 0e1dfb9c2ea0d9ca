"""The phases of one run of a handler, which decide how its Bot API calls are made.

Calls that begin while the run is open belong to it and have ended when `ended` returns. Later calls do not belong to
the run: they are made outside any update, or refused if the run failed or lost its lease (late_calls.py). Used on one
event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any


class Phase(Enum):
    OPEN = "the handler runs"
    ENDING = "the handler has returned; the run's calls are awaited"
    OVER = "the run has succeeded, with its lease"
    FAILED = "the run has failed, or has lost its lease"


class Lifecycle:
    """The phase of a run, set by async_context.py, and its calls in flight."""

    __slots__ = ("_calls", "phase")

    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self._calls: set[asyncio.Future[Any]] = set()

    @property
    def is_open(self) -> bool:
        return self.phase is Phase.OPEN

    def add(self, call: asyncio.Future[Any]) -> None:
        """Make the run wait for this call."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    @contextmanager
    def tracked(self) -> Iterator[None]:
        """Wraps a call, from its reservation to its outcome. The run waits for it if the run is open now."""
        if not self.is_open:
            yield
            return
        call = asyncio.get_running_loop().create_future()
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)
            if not call.done():
                call.set_result(None)

    async def ended(self) -> None:
        """Wait for all calls. A cancellation of the wait does not cancel them."""
        while self._calls:
            await asyncio.wait(self._calls)
