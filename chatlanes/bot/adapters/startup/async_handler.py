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
        lifetime: AsyncLifetime | None = None,
    ) -> None:
        self.handle, self.before, self.steps, self._lifetime = handle, before or _nothing, steps, lifetime

    async def __call__(self, ctx: Context) -> Any:
        if self._lifetime is not None:
            await self._lifetime.begun(ctx)
        return await self.handle(ctx)

    def started(self, label: str) -> AsyncHandler:
        """The handler for a worker: its start-up runs once in each process, before the first update."""
        if self.steps is None:
            return self
        return AsyncHandler(self.handle, self.before, lifetime=AsyncLifetime(label, self.steps))

    def beside(self, function: Callable[[Context], Any]) -> Callable[[Context], Any]:
        """Another coroutine function of the same bot, which runs when the bot has started; a plain one is unchanged."""
        return AsyncHandler(function, lifetime=self._lifetime) if is_async(function) else function
