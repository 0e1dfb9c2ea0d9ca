"""A coroutine handler with what its adapter does before each update and at the start of a process.

Guarantees that blocking work before an update, on the thread that waits for it, delays no other update and takes no
other thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from chatlanes.bot.adapters.startup.lifetime import AsyncLifetime, Steps
from chatlanes.bot.context import Context


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _nothing(_: Context) -> None: ...


class AsyncHandler:
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

    def started(self, said: str) -> AsyncHandler:
        """The same, for a worker: its steps are taken in each process, and an update comes after them."""
        if self.steps is None:
            return self
        lifetime, handle = AsyncLifetime(said, self.steps), self.handle

        async def handle_when_begun(ctx: Context) -> Any:
            await lifetime.begun(ctx)
            return await handle(ctx)

        return AsyncHandler(handle_when_begun, self.before)
