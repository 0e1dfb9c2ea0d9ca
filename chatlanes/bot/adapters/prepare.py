"""What an adapter does for an update before its coroutine begins, and what its bot does at the start of a process.

Promises that what blocks ahead of an update, on the thread that will wait for it, keeps nobody else waiting, and takes
no other thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from chatlanes.bot.adapters.lifetime import AsyncLifetime, Steps
from chatlanes.bot.context import Context


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _nothing(_: Context) -> None: ...


class Ahead:
    """A handler that is a coroutine function, with what comes `before` it, and the `steps` of its processes."""

    def __init__(
        self,
        handle: Callable[[Context], Awaitable[Any]],
        before: Callable[[Context], object] | None = None,
        steps: Steps | None = None,
    ) -> None:
        self.handle, self.before, self.steps = handle, before or _nothing, steps

    async def __call__(self, ctx: Context) -> Any:
        return await self.handle(ctx)

    def started(self, said: str) -> Ahead:
        """The same, for a worker: its steps are taken in each process, and an update comes after them."""
        if self.steps is None:
            return self
        lifetime, handle = AsyncLifetime(said, self.steps), self.handle

        async def handle_when_begun(ctx: Context) -> Any:
            await lifetime.begun(ctx)
            return await handle(ctx)

        return Ahead(handle_when_begun, self.before)
