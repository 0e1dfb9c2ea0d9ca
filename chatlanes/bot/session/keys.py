"""The key of the session that an update has. Pure.

Guarantees that the built-in keys are those of updates.routing: an update that is ordered by its chat may store its
chat's session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from chatlanes.updates import ORDERS, ParsedUpdate, by_chat, by_topic, by_user, number, parse

#: From an update to its session's key; None: it has none.
KeyFunction = Callable[[dict[str, Any]], str | None]


class SessionKey(NamedTuple):
    """The key, and the one that the session moves from: the group's, when that becomes a supergroup."""

    key: str | None
    moves_from: str | None = None


def session_key_of(update: dict[str, Any], session: str | KeyFunction) -> SessionKey:
    """`session` is what the bot says (bot.py). Raises what an author's function raises."""
    if not isinstance(session, str):
        return SessionKey(session(update))
    return OURS[session](parse(update))


def _of_chat(parsed: ParsedUpdate) -> SessionKey:
    """Both messages of a migration have both chats' keys; from the first one on the session is the supergroup's."""
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


#: The orders of ours (ORDER_BY) under which every update may keep its session. Not for "chat", the default of bots that
#: have none: an update that cannot keep it says so when it is used.
ORDERS_FOR = {
    "user": ("user", "chat+user", "bot"),
    "chat+user": ("chat", "chat+user", "bot"),
    "topic": ("topic", "bot"),
}


def check_order(session: str | KeyFunction, order_by: str) -> None:
    """Raises ValueError for a session that a bot asks for and that its updates could not keep."""
    wanted = ORDERS_FOR.get(session, ()) if isinstance(session, str) else ()
    if wanted and order_by in ORDERS and order_by not in wanted:
        raise ValueError(
            f"session={session!r} does not go with ORDER_BY={order_by}, for two updates could write one session at the "
            f"same time; set ORDER_BY to {' or '.join(wanted)}, or choose another session"
        )


OURS: dict[str, Callable[[ParsedUpdate], SessionKey]] = {
    "chat": _of_chat,
    "user": _of_user,
    "chat+user": _of_user_in_chat,
    "topic": _of_topic,
}
