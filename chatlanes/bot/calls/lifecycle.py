"""The phases of one run of a handler, which decide what its Bot API calls may do.

Guarantees that the calls which begin while it is open belong to the run and have ended when `ended` returns. A later
call does not belong to it: it is made outside of any update, or refused when the run has failed or lost its lease
(late_calls.py). Belongs to one event loop.
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
    """`phase` is set by whoever runs the handler (async_context.py)."""

    __slots__ = ("_calls", "phase")

    def __init__(self) -> None:
        self.phase = Phase.OPEN
        self._calls: set[asyncio.Future[Any]] = set()

    @property
    def is_open(self) -> bool:
        return self.phase is Phase.OPEN

    def add(self, call: asyncio.Future[Any]) -> None:
        """The run waits for this call."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Around a call, from its reservation to its outcome. The run waits for it if it is open now."""
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
