"""What TeleBot keeps for a chat, whatever its updates are ordered by: with ORDER_BY=user or topic, for the user's or
the topic's part of it.

Promises what storage.py promises. TeleBot asks for next steps at every message, so that there must be a place for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlanes.bot.adapters import storage
from chatlanes.bot.current import current
from chatlanes.bot.session.keys import session_key_of
from chatlanes.bot.session.stored import UnsafeKeyError


def load(chat_id: int | None, name: str) -> Any:
    """None: nothing. Without a chat it is the update's own. Raises as storage.load."""
    return _at(chat_id, lambda place: storage.load(place, f"telebot:{name}"))


def keep(chat_id: int | None, name: str, value: Any) -> None:
    """None deletes. Raises as storage.keep."""
    _at(chat_id, lambda place: storage.keep(place, f"telebot:{name}", value))


def _at(chat_id: int | None, act: Callable[[storage.Place], Any]) -> Any:
    try:
        return act(chat_id)
    except UnsafeKeyError:
        # Only now is it known, without asking for it alone, what orders this update.
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
