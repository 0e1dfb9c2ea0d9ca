"""Finds the conversations of an Application, and makes its handlers blocking.

Each ConversationHandler has a name that is the same in every process: its own, or its position among the handlers. Its
conversation_timeout is a timer if it has TIMEOUT handlers (timeouts.py), and otherwise limits how long its states are
stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from telegram import Update
from telegram.ext import Application, BaseHandler, ConversationHandler

AnyApplication = Application[Any, Any, Any, Any, Any, Any]


class Conversation(NamedTuple):
    """One ConversationHandler. `timeout_s`: how long after the last update that it handled it ends."""

    name: str
    handler: ConversationHandler[Any]
    timeout_s: float | None

    @property
    def has_timer(self) -> bool:
        """True if handlers run when it ends by its timeout."""
        return self.timeout_s is not None and bool(self.handler.states.get(ConversationHandler.TIMEOUT))

    def key(self, update: Update) -> tuple[int | str, ...] | None:
        """The key of the update's conversation; None if the update lacks a chat, user or message for it."""
        try:
            return self.handler._get_key(update)
        except RuntimeError:
            return None


def conversations_of(application: AnyApplication) -> list[Conversation]:
    """All ConversationHandlers, nested ones included, except those that the application's own persistence stores."""
    places: dict[int, tuple[str, ConversationHandler[Any]]] = {}
    for place, handler in _everywhere(application):
        if isinstance(handler, ConversationHandler) and not (application.persistence and handler.persistent):
            places.setdefault(id(handler), (place, handler))
    named = Counter(handler.name for _, handler in places.values())
    return [
        Conversation(
            handler.name if handler.name and named[handler.name] == 1 else place, handler, _timeout_of(handler)
        )
        for place, handler in places.values()
    ]


def wait_for_handlers(application: AnyApplication) -> None:
    """Make all handlers blocking: one with block=False could still run during the next update of its chat."""
    for _, handler in _everywhere(application):
        handler.block = True
    application.error_handlers = dict.fromkeys(application.error_handlers, True)


def _timeout_of(handler: ConversationHandler[Any]) -> float | None:
    """The conversation_timeout, which is removed from the handler: with it, the framework would look for its job queue
    and warn at each update.
    """
    timeout, handler._conversation_timeout = handler.conversation_timeout, None
    return (timeout.total_seconds() if isinstance(timeout, timedelta) else timeout) or None


def _everywhere(application: AnyApplication) -> Iterator[tuple[str, BaseHandler[Any, Any, Any]]]:
    for group, handlers in application.handlers.items():
        yield from _among(str(group), handlers)


def _among(place: str, handlers: Iterable[Any]) -> Iterator[tuple[str, BaseHandler[Any, Any, Any]]]:
    for number, handler in enumerate(handlers):
        yield (here := f"{place}.{number}"), handler
        if isinstance(handler, ConversationHandler):
            yield from _among(f"{here}.entry", handler.entry_points)
            for state, inside in handler.states.items():
                yield from _among(f"{here}.{state}", inside)
            yield from _among(f"{here}.fallback", handler.fallbacks)
