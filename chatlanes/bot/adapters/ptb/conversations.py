"""Finds the conversations of an Application, and makes its handlers blocking.

Each ConversationHandler has a name that is the same in every process: its own, or its position among the handlers. A
conversation_timeout limits how long the state is stored; the conversation then ends without a TIMEOUT handler, because
the framework keeps the update for it in one process.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from telegram import Update
from telegram.ext import Application, BaseHandler, ConversationHandler

AnyApplication = Application[Any, Any, Any, Any, Any, Any]

log = logging.getLogger(__name__)


class Conversation(NamedTuple):
    """One ConversationHandler. `timeout_s`: how long its state is stored after the last update."""

    name: str
    handler: ConversationHandler[Any]
    timeout_s: float | None

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
    if timeout is None:
        return None
    if handler.states.get(ConversationHandler.TIMEOUT):
        log.warning(
            "the handlers in ConversationHandler.TIMEOUT do not run here: a conversation without updates for longer "
            "than its conversation_timeout ends without calling them"
        )
    return float(timeout) if isinstance(timeout, int | float) else timeout.total_seconds()


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
