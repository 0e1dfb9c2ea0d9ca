"""TeleBot's stored data of a chat, under any ORDER_BY: with ORDER_BY=user or topic, it is stored per user or topic.

The guarantees are those of storage.py. TeleBot reads next steps at every message, so they need a place in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlanes.bot.adapters import storage
from chatlanes.bot.current import current
from chatlanes.bot.session.keys import session_key_of
from chatlanes.bot.session.stored import UnsafeKeyError


def load(chat_id: int | None, name: str) -> Any:
    """The stored value, or None. `chat_id` None: the update's chat. Raises the same as storage.load."""
    return _at(chat_id, lambda place: storage.load(place, f"telebot:{name}"))


def keep(chat_id: int | None, name: str, value: Any) -> None:
    """Store a value; None deletes it. Raises the same as storage.keep."""
    _at(chat_id, lambda place: storage.keep(place, f"telebot:{name}", value))


def _at(chat_id: int | None, act: Callable[[storage.Place], Any]) -> Any:
    try:
        return act(chat_id)
    except UnsafeKeyError:
        # The keys that order this update are known only now; learning them before would have cost a round trip.
        ctx = current()
        own = (
            [session_key_of(ctx.update, kind).key for kind in ("topic", "user")]
            if chat_id in (None, ctx.chat_id)
            else []
        )
        place = next((key for key in own if key and storage.is_safe(key)), None)
        if place is None:
            raise
        return act(place)
