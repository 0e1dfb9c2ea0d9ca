"""Server-sent events for every open page.

A page gets a snapshot, then every change in order. A page that cannot keep up is disconnected; it reconnects and gets a
snapshot again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import orjson

#: Events that a page may be behind: more than a flood makes while a page draws.
MOST_BEHIND = 20_000
#: Time without events after which a comment is sent, so that a lost connection is noticed.
QUIET_S = 15.0


class EventStream:
    """The open pages."""

    def __init__(self) -> None:
        self._open: set[asyncio.Queue[bytes]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def publish(self, kind: str, value: Any) -> None:
        if not self._open:
            return
        event = _event(kind, value)
        for pages in list(self._open):
            if pages.qsize() > MOST_BEHIND:
                self._open.discard(pages)
            pages.put_nowait(event)

    async def follow(self, snapshot: Callable[[], Any]) -> AsyncIterator[bytes]:
        """The events for one page, until it is closed."""
        events: asyncio.Queue[bytes] = asyncio.Queue()
        self._open.add(events)
        try:
            yield b"retry: 500\n\n" + _event("snapshot", snapshot())
            while events in self._open or not events.empty():
                event = b": still here\n\n"
                with suppress(TimeoutError):
                    event = await asyncio.wait_for(events.get(), QUIET_S)
                while not events.empty():
                    event += events.get_nowait()
                yield event
        finally:
            self._open.discard(events)


def _event(kind: str, value: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps(value))
