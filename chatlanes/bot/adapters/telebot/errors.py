"""Collects what a telebot's handlers raise, in place of its exception handler, which would only log some errors.

Guarantees that the bot's own exception handler is asked, and that an error it does not call handled is raised when the
update has been processed. The calls of an exception handler have places of their own in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from chatlanes.bot.adapters import bridge

#: What the handlers of the update that is handled here raised.
_failures: ContextVar[list[Exception]] = ContextVar("failures")


@contextmanager
def raised_again() -> Iterator[None]:
    """Around the handling of one update."""
    failures: list[Exception] = []
    token = _failures.set(failures)
    try:
        yield
    finally:
        _failures.reset(token)
    if failures:
        raise failures[0]


class ErrorCollector:
    """Of a TeleBot."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def handle(self, exception: Exception) -> bool:
        with bridge.beside("error/"):
            is_handled = self._own is not None and self._own.handle(exception)
        return _noted(exception, is_handled)


class AsyncErrorCollector(ErrorCollector):
    """Of an AsyncTeleBot whose own `handle` is an `async def`."""

    async def handle(self, exception: Exception) -> bool:  # type: ignore[override]
        with bridge.beside("error/"):
            is_handled = await self._own.handle(exception)
        return _noted(exception, is_handled)


def _noted(exception: Exception, is_handled: Any) -> bool:
    failures = _failures.get(None)
    if failures is not None and not is_handled:
        failures.append(exception)
    return bool(is_handled)
