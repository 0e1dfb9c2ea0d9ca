"""Buttons with arbitrary_callback_data: the data of a keyboard is stored with the update that sent it.

Any worker finds the data of a pressed button. A rerun gives its buttons the same names, so that the journal recognizes
its calls. The data belongs to the update's chat: a button pressed in another chat is invalid.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any
from uuid import UUID, uuid4

from telegram import Update
from telegram.ext import CallbackDataCache, ExtBot, _callbackdatacache

from chatlanes.bot.adapters import storage

#: How long the data of a keyboard is stored.
KEPT_S = 90 * 86_400.0

#: The length of a keyboard's name, with which the callback data of its buttons begins.
_NAME_LENGTH = 32


class _Names:
    """The names of keyboards and buttons that one update creates. They cannot be guessed without the bot's token."""

    def __init__(self, token: str, update: str) -> None:
        """`update` identifies the update in each of its runs."""
        self._key, self._update = token.encode(), update
        self.given: list[str] = []

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


_callbackdatacache.uuid4 = _another  # type: ignore[attr-defined]


class Buttons:
    """The buttons of one bot."""

    def __init__(self, bot: ExtBot[Any]) -> None:
        self._bot = bot

    @asynccontextmanager
    async def kept(self, update: Update | None, name: str = "") -> AsyncIterator[None]:
        """Wraps the processing of an update: loads the data of its pressed button, and stores that of new ones. `name`
        identifies a job, which has no Update, or one that the update has caused.
        """
        cache = self._bot.callback_data_cache
        if cache is None:
            yield
            return
        _names.set(names := _Names(self._bot.token, name or str(update and update.update_id)))
        pressed = ""
        if update:
            pressed = await _load_pressed(cache, update)
            self._bot.insert_callback_data(update)
        try:
            yield
            for each in names.given:
                if each in cache._keyboard_data:
                    storage.keep(None, _place(each), cache._keyboard_data[each].button_data, KEPT_S)
            if pressed and pressed not in cache._keyboard_data:
                storage.keep(None, _place(pressed), None)
        finally:
            for each in (*names.given, pressed):
                cache._keyboard_data.pop(each, None)
            if update and update.callback_query:
                cache._callback_queries.pop(update.callback_query.id, None)


async def _load_pressed(cache: CallbackDataCache, update: Update) -> str:
    """Load the data of the pressed keyboard; returns its name, or "" if there is none."""
    query = update.callback_query
    name = (query.data or "")[:_NAME_LENGTH] if query else ""
    if not name:
        return ""
    await asyncio.to_thread(storage.fetch, [(None, _place(name))])
    found = storage.load(None, _place(name)) if storage.is_safe(None) else None
    if found is None:
        return ""
    cache._keyboard_data[name] = _callbackdatacache._KeyboardData(name, button_data=found)
    return name


def _place(keyboard: str) -> str:
    return f"ptb:keyboard:{keyboard}"
