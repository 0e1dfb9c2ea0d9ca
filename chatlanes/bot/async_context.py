"""The context of an `async def` handler: the same one, with calls that can be awaited.

Guarantees that a call begins when it is written, in its place among the others, and has ended before its update is
settled, also if it is not awaited: its error is then the handler's. A call that a task makes after the handler ended is
made outside of the update (late_calls.py). The first read of a session blocks the loop for a moment; later runs read it
before the handler begins (SessionPrefetch).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any

from redis.exceptions import RedisError

from chatlanes.bot.calls.lifecycle import Lifecycle, Phase
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context
from chatlanes.bot.session.codec import SessionError
from chatlanes.bot.shorthands import Shorthands
from chatlanes.lanes.errors import LeaseLost
from chatlanes.lanes.worker.executor import blocking_executor

#: All that calls the Bot API.
_CALLS = frozenset({"call", *(name for name in dir(Shorthands) if not name.startswith("_"))})


class PendingCall:
    """A call under way. Awaiting it gives its result."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future
        self.is_awaited = False

    def __await__(self) -> Generator[Any, None, Any]:
        self.is_awaited = True
        return self.future.__await__()


class AsyncContext(Context):
    """A view of a context: all that it knows is the context's own."""

    __slots__ = ("_begun", "life")
    _begun: list[PendingCall]
    life: Lifecycle

    @classmethod
    def of(cls, ctx: Context) -> AsyncContext:
        view = cls.__new__(cls)
        object.__setattr__(view, "__dict__", ctx.__dict__)
        object.__setattr__(view, "_begun", [])
        object.__setattr__(view, "life", ctx.api.life if isinstance(ctx.api, Calls) else Lifecycle())
        return view

    def __getattribute__(self, name: str) -> Any:
        return partial(self._begin, name) if name in _CALLS else super().__getattribute__(name)

    def _begin(self, name: str, *arguments: Any, **params: Any) -> Awaitable[Any]:
        method = {"call": arguments[0] if arguments else "", "download": "getFile"}.get(name, name)
        api = self.api.reserved(method) if isinstance(self.api, Calls) else self.api
        call = partial(getattr(Context(self.update, api), name), *arguments, **params)
        begun = PendingCall(blocking_executor().call(call))
        if self.life.is_open:
            self.life.add(begun.future)
            self._begun.append(begun)
        return begun

    async def ended(self) -> None:
        """Wait for every call of the run. Raises the error of one that nobody awaited."""
        await self.life.ended()
        for begun in self._begun:
            if not begun.is_awaited:
                begun.future.result()


class SessionPrefetch:
    """Of one handler: whether it reads its session, which would stop every chat of the loop while Redis is away."""

    def __init__(self) -> None:
        self._is_wanted = False

    def before(self, ctx: Context) -> None:
        """On the handler's own thread. What cannot be read is told where it is used."""
        if self._is_wanted:
            with suppress(SessionError):
                _ = ctx.session

    def after(self, ctx: Context) -> None:
        self._is_wanted |= ctx.has_read_session


async def awaited(function: Callable[..., Coroutine[Any, Any, Any]], ctx: Context, *arguments: Any) -> Any:
    """What the function returns for this context, when its calls have ended too."""
    view = AsyncContext.of(ctx)
    life = view.life
    try:
        try:
            result = await function(view, *arguments)
        finally:
            await asyncio.sleep(0)  # the first step of a task that the handler started last: its call is the run's
        life.phase = Phase.ENDING
        await view.ended()
        life.phase = Phase.OVER if await _is_ours(ctx.api) else Phase.FAILED
    except BaseException:
        life.phase = Phase.FAILED
        await life.ended()
        raise
    return result


async def _is_ours(api: object) -> bool:
    """Whether the run ends with its lease. What it leaves behind may call the Bot API only then."""
    if not isinstance(api, Calls) or api.is_sure():
        return True
    try:
        await blocking_executor().call(partial(api.ensure, "its end"))
    except LeaseLost:
        return False
    except RedisError:  # while it is away, nobody else is given the update
        return True
    return True
