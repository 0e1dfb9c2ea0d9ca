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

_CURRENT: ContextVar[Context] = ContextVar("current update")


def current() -> Context:
    """The context of the update that is being handled. Raises LookupError outside of a handler."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise LookupError("no update is being handled here: current() works inside of a handler") from None


@contextmanager
def handling(ctx: Context) -> Iterator[None]:
    """Around a handler."""
    token = _CURRENT.set(ctx)
    try:
        yield
    finally:
        _CURRENT.reset(token)
