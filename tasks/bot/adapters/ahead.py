"""What an adapter does for an update before its coroutine begins, on the thread that will wait for it.

Promises that what blocks there keeps nobody else waiting, and takes no other thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from tasks.bot.context import Context


class Ahead:
    """A handler that is a coroutine function, with what comes `before` it."""

    def __init__(self, handle: Callable[[Context], Awaitable[Any]], before: Callable[[Context], object]) -> None:
        self._handle = handle
        self.before = before

    async def __call__(self, ctx: Context) -> Any:
        return await self._handle(ctx)
