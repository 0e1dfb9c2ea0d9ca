"""A coroutine handler, with the functions that its adapter runs before each update and at the start of a process.

A blocking function before an update runs on the thread that waits for this update, so it delays no other update and
needs no further thread.
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
    """A coroutine handler. `before` is called before each update; `steps` run at the start and end of each process."""

    def __init__(
        self,
        handle: Callable[[Context], Awaitable[Any]],
        before: Callable[[Context], object] | None = None,
        steps: Steps | None = None,
    ) -> None:
        self.handle, self.before, self.steps = handle, before or _nothing, steps

    async def __call__(self, ctx: Context) -> Any:
        return await self.handle(ctx)

    def started(self, label: str) -> AsyncHandler:
        """The handler for a worker: its start-up runs once in each process, before the first update."""
        if self.steps is None:
            return self
        lifetime, handle = AsyncLifetime(label, self.steps), self.handle

        async def handle_when_started(ctx: Context) -> Any:
            await lifetime.begun(ctx)
            return await handle(ctx)

        return AsyncHandler(handle_when_started, self.before)
