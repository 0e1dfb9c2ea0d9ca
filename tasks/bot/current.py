"""The update that is being handled here: for code that is not given its context, such as a framework's handlers.

Promises the right one in every thread, greenlet and coroutine that the handler itself started its work in. Does not
follow into threads that a handler starts by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.bot.context import Context

_CURRENT: ContextVar[Context | None] = ContextVar("current update", default=None)


def current() -> Context:
    """The context of the update that is being handled. Raises LookupError outside of a handler."""
    ctx = _CURRENT.get()
    if ctx is None:
        raise LookupError("no update is being handled here: current() works inside of a handler")
    return ctx


@contextmanager
def handling(ctx: Context | None) -> Iterator[None]:
    """Around a handler; with None, around what happens beside it and is no part of it."""
    token = _CURRENT.set(ctx)
    try:
        yield
    finally:
        _CURRENT.reset(token)
