"""The data of an Application that is stored with one update: each slot has a place in Redis and a place in memory.

A slot holds its stored or a new value while the update's handlers run, and is removed from memory afterwards. Memory is
proportional to the running updates, not to the number of known chats.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

from telegram import Update

from chatlanes.bot.adapters import storage
from chatlanes.bot.adapters.ptb.conversations import AnyApplication, Conversation

log = logging.getLogger(__name__)


class Data:
    """The chat_data or user_data of one id: a dict, or the type that ContextTypes sets.

    `place` (one of `places`) and `name` are arguments of storage.py; `value` is the value to store, or None.
    """

    ttl_s: float | None = None

    def __init__(self, of_all: Any, number: int, name: str, *places: storage.Place) -> None:
        self._of_all, self._number = of_all, number
        self.name, self.places = name, places

    @property
    def place(self) -> storage.Place:
        """The first safe place. With ORDER_BY=chat, user_data is therefore stored per chat."""
        return next(filter(storage.is_safe, self.places), self.places[-1])

    @property
    def value(self) -> Any:
        return self._contents or None

    def fill(self, found: Any) -> None:
        self._of_all.pop(self._number, None)
        self._contents.update(found or {})

    def forget(self) -> None:
        self._of_all.pop(self._number, None)

    @property
    def _contents(self) -> dict[Any, Any]:
        """The data as a dict. The framework creates it if it does not exist."""
        data = self._of_all[self._number]
        contents = data if isinstance(data, dict) else getattr(data, "__dict__", None)
        if contents is None:
            _warn_of_slots(type(data).__name__)
        return contents if contents is not None else {}


class Position:
    """The state of one conversation."""

    def __init__(self, conversation: Conversation, key: tuple[int | str, ...]) -> None:
        self._states = conversation.handler._conversations
        self._key = key
        self.ttl_s = conversation.timeout_s
        self.place: storage.Place = None
        self.places: tuple[storage.Place, ...] = (None,)
        self.name = f"ptb:conversation:{conversation.name}:{':'.join(map(str, key))}"

    @property
    def value(self) -> Any:
        return {"state": self._states[self._key]} if self._key in self._states else None

    def fill(self, found: Any) -> None:
        self.forget()
        if found is not None:
            self._states[self._key] = found["state"]

    def forget(self) -> None:
        self._states.pop(self._key, None)


Slot = Data | Position


def data_of(application: AnyApplication, update: Update) -> Iterator[Slot]:
    chat, user = update.effective_chat, update.effective_user
    if chat:
        yield Data(application._chat_data, chat.id, "ptb:chat", None)
    if user:
        yield Data(application._user_data, user.id, f"ptb:user:{user.id}", f"user:{user.id}", None)


def positions_of(conversations: list[Conversation], update: Update) -> Iterator[Slot]:
    for conversation in conversations:
        key = conversation.key(update)
        if key is not None:
            yield Position(conversation, key)


@cache
def _warn_of_slots(kind: str) -> None:
    log.warning("%s is not stored, because it has no __dict__: use a dict, or a class without __slots__", kind)
