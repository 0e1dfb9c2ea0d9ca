"""Buttons with arbitrary_callback_data: the data of a keyboard is stored with the update that sent it.

Any worker finds the data of a pressed button, until the bot clears the data of the chat. A rerun gives its buttons the
same names, so that the journal recognizes its calls. The data belongs to the update's chat: a button pressed in another
chat is invalid.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from telegram import Update
from telegram._utils.datetime import to_float_timestamp
from telegram.ext import CallbackDataCache, ExtBot, _callbackdatacache

from chatlanes.bot.adapters import storage

#: How long the data of a keyboard is stored.
KEPT_S = 90 * 86_400.0

#: The length of a keyboard's name, with which the callback data of its buttons begins.
_NAME_LENGTH = 32
#: Beside the data of a keyboard's buttons, whose names are longer: when the keyboard was made.
_AT = "at"
#: The key of the time before which the keyboards of a chat are cleared.
_CLEARED = "ptb:keyboards cleared"


class _Names:
    """The names of keyboards and buttons that one update creates. They cannot be guessed without the bot's token."""

    def __init__(self, token: str, update: str) -> None:
        """`update` identifies the update in each of its runs."""
        self._key, self._update = token.encode(), update
        self.given: list[str] = []
        self.pressed = ""
        self.cleared_before = 0.0

    def another(self) -> UUID:
        text = f"button {self._update}:{len(self.given)}"
        name = UUID(bytes=hmac.digest(self._key, text.encode(), "sha256")[:16])
        self.given.append(name.hex)
        return name


_names: ContextVar[_Names | None] = ContextVar("names of buttons", default=None)


def _another() -> UUID:
    """Replaces uuid4: random names would differ between attempts."""
    names = _names.get()
    return uuid4() if names is None else names.another()


_own_clear = CallbackDataCache.clear_callback_data


def _clear(cache: CallbackDataCache, time_cutoff: float | datetime | None = None) -> None:
    """Replaces `clear_callback_data`: in an update it clears the keyboards of its chat."""
    names = _names.get()
    if names is None:
        _own_clear(cache, time_cutoff)
        return
    if isinstance(time_cutoff, datetime):
        defaults = cache.bot.defaults
        time_cutoff = to_float_timestamp(time_cutoff, tzinfo=defaults.tzinfo if defaults else None)
    names.cleared_before = before = time_cutoff or time.time()
    for each in (*names.given, names.pressed):
        if each in cache._keyboard_data and cache._keyboard_data[each].access_time < before:
            del cache._keyboard_data[each]


_callbackdatacache.uuid4 = _another  # type: ignore[attr-defined]
CallbackDataCache.clear_callback_data = _clear  # type: ignore[assignment, method-assign]


@asynccontextmanager
async def kept_buttons(bot: ExtBot[Any], update: Update | None, name: str = "") -> AsyncIterator[None]:
    """Wraps the processing of an update: loads the data of its pressed button, and stores that of new ones. `name`
    identifies a job, which has no Update, or one that the update has caused.
    """
    cache = bot.callback_data_cache
    if cache is None:
        yield
        return
    _names.set(names := _Names(bot.token, name or str(update and update.update_id)))
    if update:
        names.pressed = await _load_pressed(cache, update)
        bot.insert_callback_data(update)
    try:
        yield
        await _store(cache, names)
    finally:
        for each in (*names.given, names.pressed):
            cache._keyboard_data.pop(each, None)
        if update and update.callback_query:
            cache._callback_queries.pop(update.callback_query.id, None)


async def _store(cache: CallbackDataCache, names: _Names) -> None:
    for each in names.given:
        if keyboard := cache._keyboard_data.get(each):
            storage.keep(None, _place(each), {**keyboard.button_data, _AT: keyboard.access_time}, KEPT_S)
    if names.pressed and names.pressed not in cache._keyboard_data:
        storage.keep(None, _place(names.pressed), None)
    if names.cleared_before:
        await storage.fetch_soon([(None, _CLEARED)])
        storage.keep(None, _CLEARED, max(storage.load(None, _CLEARED) or 0.0, names.cleared_before), KEPT_S)


async def _load_pressed(cache: CallbackDataCache, update: Update) -> str:
    """Load the data of the pressed keyboard; returns its name, or "" if there is none."""
    query = update.callback_query
    name = (query.data or "")[:_NAME_LENGTH] if query else ""
    if not name:
        return ""
    await storage.fetch_soon([(None, _place(name)), (None, _CLEARED)])
    found = storage.load(None, _place(name)) if storage.is_safe(None) else None
    if found is None or found.pop(_AT, 0.0) < (storage.load(None, _CLEARED) or 0.0):
        return ""
    cache._keyboard_data[name] = _callbackdatacache._KeyboardData(name, button_data=found)
    return name


def _place(keyboard: str) -> str:
    return f"ptb:keyboard:{keyboard}"
