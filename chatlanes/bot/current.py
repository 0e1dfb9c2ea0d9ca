"""The context of the current update, for code that does not receive one, such as a framework's handlers.

It is set in every thread, greenlet and coroutine that a handler runs in, but not in threads that the handler starts
itself. Tasks that outlive a successful handler no longer have it; tasks that outlive a failed one, or one that has lost
its lease, keep it, and their calls are refused.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING

from chatlanes.bot.calls.lifecycle import Phase

if TYPE_CHECKING:
    from chatlanes.bot.context import Context


class _Handled:
    """The current context, shared by all tasks of a handler: they copy the variable, but not this object."""

    def __init__(self, ctx: Context | None, outer: _Handled | None) -> None:
        self._ctx, self._outer = ctx, outer

    @property
    def ctx(self) -> Context | None:
        """None when the handler, or the outer one, has ended."""
        return None if self._outer is not None and self._outer.ctx is None else self._ctx

    def end(self) -> None:
        if self._outer is None:
            self._ctx = None


_CURRENT: ContextVar[_Handled | None] = ContextVar("current update", default=None)


def current() -> Context:
    """The context of the current update. Raises LookupError outside a handler."""
    if (ctx := current_or_none()) is None:
        raise LookupError("no update is being handled here: current() works inside of a handler")
    return ctx


def current_or_none() -> Context | None:
    """The context of the current update; None outside a handler."""
    handled = _CURRENT.get()
    return None if handled is None else handled.ctx


class handling:  # noqa: N801 - used like `with suppress(…)`
    """Sets the current context around a handler. None: code inside has no current update."""

    __slots__ = ("_handled", "_token")
    _token: Token[_Handled | None]

    def __init__(self, ctx: Context | None) -> None:
        outer = None if ctx is None else _CURRENT.get()
        self._handled = _Handled(ctx, None if outer is None or outer.ctx is None else outer)

    def __enter__(self) -> None:
        self._token = _CURRENT.set(self._handled)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None and not _has_failed(self._handled.ctx):
            self._handled.end()
        _CURRENT.reset(self._token)


def _has_failed(ctx: Context | None) -> bool:
    """True if the run has failed or lost its lease, although its handler has returned."""
    life = getattr(getattr(ctx, "api", None), "life", None)
    return life is not None and life.phase is Phase.FAILED
