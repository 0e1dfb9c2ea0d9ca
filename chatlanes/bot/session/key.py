"""Whose session an update has. Pure.

Promises that ours are keys of tasks.routing: an update which is ordered by its chat may keep its chat's session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from chatlanes.updates.parsing import Anatomy, lay_open, number
from chatlanes.updates.routing import ORDERS, by_chat, by_topic, by_user

#: From an update to its session's key; None: it has none.
KeyFunction = Callable[[dict[str, Any]], str | None]


class Place(NamedTuple):
    """The key, and the one that the session moves from: the group's, when that becomes a supergroup."""

    key: str | None
    moves_from: str | None = None


def place_of(update: dict[str, Any], session: str | KeyFunction) -> Place:
    """`session` is what the bot says (bot.py). Raises what an author's function raises."""
    if not isinstance(session, str):
        return Place(session(update))
    return OURS[session](lay_open(update))


def _of_chat(opened: Anatomy) -> Place:
    """Both messages of a migration have both chats' keys; from the first one on the session is the supergroup's."""
    return _migrated(opened, by_chat(opened))


def _of_topic(opened: Anatomy) -> Place:
    return _migrated(opened, by_topic(opened))


def _of_user(opened: Anatomy) -> Place:
    return Place(next(iter(by_user(opened)), None))


def _of_user_in_chat(opened: Anatomy) -> Place:
    chat, user = next(iter(by_chat(opened)), None), next(iter(by_user(opened)), None)
    return Place(f"{chat}/{user}" if user not in (None, chat) else chat)


def _migrated(opened: Anatomy, keys: list[str]) -> Place:
    if opened.migration is None or len(keys) != 2:
        return Place(next(iter(keys), None))
    here, other = keys
    is_old = number(opened.body.get("migrate_to_chat_id")) is not None
    return Place(other, here) if is_old else Place(here, other)


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


OURS: dict[str, Callable[[Anatomy], Place]] = {
    "chat": _of_chat,
    "user": _of_user,
    "chat+user": _of_user_in_chat,
    "topic": _of_topic,
}
