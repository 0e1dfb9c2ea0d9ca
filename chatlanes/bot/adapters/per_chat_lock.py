"""Updates of one process that share a chat or a user, one after the other: their framework has one dict for each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager


class Turns:
    """On one event loop."""

    def __init__(self) -> None:
        self._locks: dict[int, asyncio.Lock] = {}
        self._wanted: Counter[int] = Counter()

    @asynccontextmanager
    async def taken(self, ids: Iterable[int]) -> AsyncIterator[None]:
        """In one order for all, so that no two wait for each other."""
        ordered = sorted(set(ids))
        self._wanted.update(ordered)
        async with AsyncExitStack() as stack:
            stack.callback(self._drop, ordered)
            for each in ordered:
                await stack.enter_async_context(self._locks.setdefault(each, asyncio.Lock()))
            yield

    def strangers(self, ids: Iterable[int]) -> list[int]:
        """Those of these that nobody has, or waits for."""
        return [each for each in list(ids) if each not in self._wanted]

    def _drop(self, ids: Iterable[int]) -> None:
        self._wanted.subtract(ids)
        for each in ids:
            if not self._wanted[each]:
                del self._wanted[each]
                self._locks.pop(each, None)
