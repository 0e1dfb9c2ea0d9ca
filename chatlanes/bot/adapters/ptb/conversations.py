"""The conversations of an Application: where each of them stands, and that no handler is left behind.

Promises a name for each ConversationHandler that is the same in every process: its own, or its place among the others.
A conversation_timeout is how long its state is kept: it ends then without a word, for no job tells it.
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
    """One handler. `timeout_s`: when it ends by itself."""

    name: str
    handler: ConversationHandler[Any]
    timeout_s: float | None

    def key(self, update: Update) -> tuple[int | str, ...] | None:
        """Whose it is; None: this update is not for it, for it has no chat, user or message."""
        try:
            return self.handler._get_key(update)
        except RuntimeError:
            return None


def conversations_of(application: AnyApplication) -> list[Conversation]:
    """Each one once, those inside of others too; but for those that a persistence of the application's own keeps."""
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
    """A handler with block=False would go on beside the next update of its chat."""
    for _, handler in _everywhere(application):
        handler.block = True
    application.error_handlers = dict.fromkeys(application.error_handlers, True)


def _timeout_of(handler: ConversationHandler[Any]) -> float | None:
    """It is ours from now on: the framework would look for its job queue, and warn with each update."""
    timeout, handler._conversation_timeout = handler.conversation_timeout, None
    if timeout is None:
        return None
    if handler.states.get(ConversationHandler.TIMEOUT):
        log.warning(
            "the handlers in ConversationHandler.TIMEOUT do not run here: a conversation that stands still for longer "
            "than its conversation_timeout is over without a word"
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
