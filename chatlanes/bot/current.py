"""The context of the update that is being handled: for code that is not given one, such as a framework's handlers.

Guarantees the right one in every thread, greenlet and coroutine that the handler itself started its work in, and none
in what goes on there after a handler that succeeded. What is left of a failed handler keeps it, and is refused with it.
Does not follow into threads that a handler starts by hand.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlanes.bot.context import Context


class _Handled:
    """Shared by all tasks of a handler: each has a copy of the variable, not of this."""

    def __init__(self, ctx: Context | None, around: _Handled | None) -> None:
        self._ctx, self._around = ctx, around

    @property
    def ctx(self) -> Context | None:
        """What is inside of another one ends with that."""
        return None if self._around is not None and self._around.ctx is None else self._ctx

    def end(self) -> None:
        if self._around is None:
            self._ctx = None


_CURRENT: ContextVar[_Handled | None] = ContextVar("current update", default=None)


def current() -> Context:
    """The context of the update that is being handled. Raises LookupError outside of a handler."""
    handled = _CURRENT.get()
    if handled is None or handled.ctx is None:
        raise LookupError("no update is being handled here: current() works inside of a handler")
    return handled.ctx


class handling:  # noqa: N801 - read as one does `with suppress(…)`
    """Around a handler; with None, around what happens beside it and is no part of it."""

    __slots__ = ("_handled", "_token")
    _token: Token[_Handled | None]

    def __init__(self, ctx: Context | None) -> None:
        around = None if ctx is None else _CURRENT.get()
        self._handled = _Handled(ctx, None if around is None or around.ctx is None else around)

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._handled)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._handled.end()
        _CURRENT.reset(self._token)
