"""The update that is being handled here: for code that is not given its context, such as a framework's handlers.

Promises the right one in every thread, greenlet and coroutine that the handler itself started its work in, and none to
what goes on there after a handler that succeeded. What is left of one that failed keeps it, and is refused with it.
Does not follow into threads that a handler starts by hand.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasks.bot.context import Context


class _Handled:
    """Shared by all tasks of a handler: each has a copy of the variable, not of this."""

    def __init__(self, ctx: Context | None) -> None:
        self.ctx = ctx
        self.calls = under_way() if ctx else set()


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


@contextmanager
def handling(ctx: Context | None) -> Iterator[None]:
    """Around a handler; with None, around what happens beside it and is no part of it."""
    handled = _Handled(ctx)
    token = _CURRENT.set(handled)
    try:
        yield
        handled.ctx = None
    finally:
        _CURRENT.reset(token)
