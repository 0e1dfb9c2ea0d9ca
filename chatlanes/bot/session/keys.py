"""Chooses the session key of an update. Pure.

The built-in session keys are the keys of updates.routing, so an update ordered by its chat may store its chat's
session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from chatlanes.bot import occurrences
from chatlanes.bot.occurrences import is_occurrence
from chatlanes.updates import ORDERS, ParsedUpdate, by_chat, by_topic, by_user, number, parse

#: Maps an update to its session key; None: no session.
KeyFunction = Callable[[dict[str, Any]], str | None]


class SessionKey(NamedTuple):
    """The session key, and the key the session moves from when a group becomes a supergroup."""

    key: str | None
    moves_from: str | None = None


def session_key_of(update: dict[str, Any], session: str | KeyFunction) -> SessionKey:
    """`session`: the bot's setting (bot.py). Raises whatever a custom function raises."""
    if is_occurrence(update):
        return SessionKey(occurrences.session_key(update))
    if not isinstance(session, str):
        return SessionKey(session(update))
    return OURS[session](parse(update))


def _of_chat(parsed: ParsedUpdate) -> SessionKey:
    """By chat. Both messages of a migration have the keys of both chats; the first one moves the session."""
    return _migrated(parsed, by_chat(parsed))


def _of_topic(parsed: ParsedUpdate) -> SessionKey:
    return _migrated(parsed, by_topic(parsed))


def _of_user(parsed: ParsedUpdate) -> SessionKey:
    return SessionKey(next(iter(by_user(parsed)), None))


def _of_user_in_chat(parsed: ParsedUpdate) -> SessionKey:
    chat, user = next(iter(by_chat(parsed)), None), next(iter(by_user(parsed)), None)
    return SessionKey(f"{chat}/{user}" if user not in (None, chat) else chat)


def _migrated(parsed: ParsedUpdate, keys: list[str]) -> SessionKey:
    if parsed.migration is None or len(keys) != 2:
        return SessionKey(next(iter(keys), None))
    here, other = keys
    is_old = number(parsed.body.get("migrate_to_chat_id")) is not None
    return SessionKey(other, here) if is_old else SessionKey(here, other)


#: session -> the built-in values of ORDER_BY under which every update may store it. "chat" is not checked, because it
#: is also the default of bots without sessions: an update that cannot store its session raises when it is used.
ORDERS_FOR = {
    "user": ("user", "chat+user", "bot"),
    "chat+user": ("chat", "chat+user", "bot"),
    "topic": ("topic", "bot"),
}


def check_order(session: str | KeyFunction, order_by: str) -> None:
    """Raises ValueError if the bot's updates could not store the sessions that it asks for."""
    wanted = ORDERS_FOR.get(session, ()) if isinstance(session, str) else ()
    if wanted and order_by in ORDERS and order_by not in wanted:
        raise ValueError(
            f"session={session!r} does not work with ORDER_BY={order_by}, because two updates could write one session "
            f"at the same time; set ORDER_BY to {' or '.join(wanted)}, or choose another session"
        )


OURS: dict[str, Callable[[ParsedUpdate], SessionKey]] = {
    "chat": _of_chat,
    "user": _of_user,
    "chat+user": _of_user_in_chat,
    "topic": _of_topic,
}
