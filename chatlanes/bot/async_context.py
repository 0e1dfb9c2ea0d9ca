"""The context of an `async def` handler: like Context, but its calls are awaitable.

A call begins as soon as the method is called, keeps its place in the journal, and ends before its update is settled,
even if it is not awaited; its error then fails the handler. A call made after the handler ended is made outside the
update (late_calls.py). The first read of a session blocks the event loop; later runs read it before the handler begins
(SessionPrefetch).
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
from chatlanes.bot.timers import Timer
from chatlanes.lanes.errors import LeaseLost
from chatlanes.lanes.worker.executor import blocking_executor

#: The methods that call the Bot API.
_CALLS = frozenset({"call", *(name for name in dir(Shorthands) if not name.startswith("_"))})


class PendingCall:
    """A call in flight. Awaiting it returns its result."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future
        self.is_awaited = False

    def __await__(self) -> Generator[Any, None, Any]:
        self.is_awaited = True
        return self.future.__await__()


class AsyncContext(Context):
    """A view of a context, which shares all of its attributes."""

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

    def broadcast(self, *arguments: Any, **params: Any) -> Any:
        """Like Context.broadcast, but awaitable."""
        begun = PendingCall(blocking_executor().call(partial(super().broadcast, *arguments, **params)))
        self.life.add(begun.future)
        self._begun.append(begun)
        return begun

    def timers(self) -> Awaitable[list[Timer]]:  # type: ignore[override]
        return blocking_executor().call(super().timers)

    async def ended(self) -> None:
        """Wait for every call of the run. Raises the error of a call that the handler did not await."""
        await self.life.ended()
        for begun in self._begun:
            if not begun.is_awaited:
                begun.future.result()


class SessionPrefetch:
    """Reads the session on the handler's own thread before the handler begins, if earlier runs used it.

    A read in the handler would block the event loop, and with it every chat, while Redis is away.
    """

    def __init__(self) -> None:
        self._is_wanted = False

    def before(self, ctx: Context) -> None:
        """Read the session. Errors are raised when the handler uses it."""
        if self._is_wanted:
            with suppress(SessionError):
                _ = ctx.session

    def after(self, ctx: Context) -> None:
        self._is_wanted |= ctx.has_read_session


async def awaited(function: Callable[..., Coroutine[Any, Any, Any]], ctx: Context, *arguments: Any) -> Any:
    """Run the function; returns its result after all its calls have ended."""
    view = AsyncContext.of(ctx)
    life = view.life
    try:
        try:
            result = await function(view, *arguments)
        finally:
            await asyncio.sleep(0)  # lets tasks that the handler just started begin their calls as part of the run
        life.phase = Phase.ENDING
        await view.ended()
        life.phase = Phase.OVER if await _is_ours(ctx.api) else Phase.FAILED
    except BaseException:
        life.phase = Phase.FAILED
        await life.ended()
        raise
    return result


async def _is_ours(api: object) -> bool:
    """True if the run still holds its lease when it ends. Only then may its remaining tasks call the Bot API."""
    if not isinstance(api, Calls) or api.is_sure():
        return True
    try:
        await blocking_executor().call(partial(api.ensure, "its end"))
    except (LeaseLost, RedisError):  # RedisError: unknown, as after a freeze of this process; the update runs again
        return False
    return True
