"""Collects the errors of a telebot's handlers, which telebot itself would only log or pass to its exception handler.

The bot's exception handler is called, and an error that it does not handle is raised after the update was processed.
The calls of an exception handler are journaled in a series of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from chatlanes.bot.adapters import bridge
from chatlanes.bot.adapters.errors import is_interruption

#: The errors of the current update's handlers.
_failures: ContextVar[list[Exception]] = ContextVar("failures")


@contextmanager
def raising_failures() -> Iterator[None]:
    """Wraps the handling of one update. Raises the first error that was not handled."""
    failures: list[Exception] = []
    token = _failures.set(failures)
    try:
        yield
    finally:
        _failures.reset(token)
    if failures:
        raise failures[0]


class ErrorCollector:
    """The exception handler of a TeleBot, which calls the bot's own one."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def handle(self, exception: Exception) -> bool:
        with bridge.in_series("error/"):
            is_handled = self._own is not None and not is_interruption(exception) and self._own.handle(exception)
        return _noted(exception, is_handled)


class AsyncErrorCollector(ErrorCollector):
    """The same for an AsyncTeleBot whose exception handler has an `async def handle`."""

    async def handle(self, exception: Exception) -> bool:  # type: ignore[override]
        with bridge.in_series("error/"):
            is_handled = not is_interruption(exception) and await self._own.handle(exception)
        return _noted(exception, is_handled)


def _noted(exception: Exception, is_handled: Any) -> bool:
    failures = _failures.get(None)
    if failures is not None and not is_handled:
        failures.append(exception)
    return bool(is_handled)
