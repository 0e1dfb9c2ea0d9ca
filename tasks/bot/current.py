"""The update that is being handled here: for code that is not given its context, such as a framework's handlers.

Promises the right one in every thread, greenlet and coroutine that the handler itself started its work in, and none to
what goes on there after a handler that succeeded. What is left of one that failed keeps it, and is refused with it.
Does not follow into threads that a handler starts by hand.
"""

from __future__ import annotations

from asyncio import Future
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.bot.context import Context


class _Handled:
    """Shared by all tasks of a handler: each has a copy of the variable, not of this."""

    def __init__(self, ctx: Context | None) -> None:
        self.ctx = ctx
        self.calls = set() if ctx is None else under_way()


_CURRENT: ContextVar[_Handled | None] = ContextVar("current update", default=None)


def current() -> Context:
    """The context of the update that is being handled. Raises LookupError outside of a handler."""
    handled = _CURRENT.get()
    if handled is None or handled.ctx is None:
        raise LookupError("no update is being handled here: current() works inside of a handler")
    return handled.ctx


def under_way() -> set[Future[Any]]:
    """Calls of the handler's that others make for it on other threads: its update is not settled before they end."""
    handled = _CURRENT.get()
    return set() if handled is None or handled.ctx is None else handled.calls


class handling:  # noqa: N801 - read as one does `with suppress(…)`
    """Around a handler; with None, around what happens beside it and is no part of it."""

    __slots__ = ("_handled", "_token")
    _token: Token[_Handled | None]

    def __init__(self, ctx: Context | None) -> None:
        self._handled = _Handled(ctx)

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._handled)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._handled.ctx = None
        _CURRENT.reset(self._token)
