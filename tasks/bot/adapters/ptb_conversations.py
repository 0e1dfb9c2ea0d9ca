"""The conversations of an Application: where each of them stands, and that no handler is left behind.

Promises a name for each ConversationHandler that is the same in every process: its own, or its place among the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from telegram.ext import Application, BaseHandler, ConversationHandler

AnyApplication = Application[Any, Any, Any, Any, Any, Any]


def conversations_of(application: AnyApplication) -> dict[str, ConversationHandler[Any]]:
    """Each one by its name, those inside of others too."""
    return {
        handler.name or place: handler
        for place, handler in _everywhere(application)
        if isinstance(handler, ConversationHandler)
    }


def wait_for_handlers(application: AnyApplication) -> None:
    """A handler with block=False would go on beside the next update of its chat."""
    for _, handler in _everywhere(application):
        handler.block = True


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
