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
from chatlanes.bot.adapters.ptb.job_storage import KIND, TIMEOUT, plain
from chatlanes.bot.current import current
from chatlanes.bot.timers import Timers

log = logging.getLogger(__name__)


class Data:
    """The chat_data or user_data of one id: a dict, or the type that ContextTypes sets.

    `place` (one of `places`) and `name` are arguments of storage.py; `value` is the value to store, or None.
    """

    ttl_s: float | None = None
    has_moved = False

    def __init__(self, of_all: Any, number: int, name: str, *places: storage.Place) -> None:
        self._of_all, self._number = of_all, number
        self.name, self.places = name, places

    @property
    def place(self) -> storage.Place:
        """With ORDER_BY=chat, user_data is stored per chat."""
        return _first_safe(self.places)

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
    """The state of one conversation. The framework takes it for the job of the conversation's timeout, and removes the
    job when the conversation handles an update.
    """

    def __init__(self, conversation: Conversation, key: tuple[int | str, ...], update: Any) -> None:
        self._conversation, self.key, self._update_id = conversation, key, update.update_id
        self.handler = conversation.handler
        self._states = self.handler._conversations
        self._jobs: dict[Any, Any] = self.handler.timeout_jobs
        self.name = f"ptb:conversation:{conversation.name}:{':'.join(map(str, key))}"
        self.places = _places_of(self.handler, update)
        self.has_moved = False
        #: The update that set the timer.
        self._timer_of: int | None = None

    @property
    def place(self) -> storage.Place:
        return _first_safe(self.places)

    @property
    def ttl_s(self) -> float | None:
        """With a timer, the timer ends the conversation."""
        return None if self._conversation.has_timer else self._conversation.timeout_s

    @property
    def value(self) -> Any:
        if self.key not in self._states:
            return None
        timer = {} if self._timer_of is None else {"timer_of": self._timer_of}
        return {"state": self._states[self.key], **timer}

    def fill(self, found: Any) -> None:
        self.forget()
        if self._conversation.timeout_s is not None:
            self._jobs[self.key] = self
        if found is not None:
            self._states[self.key] = found["state"]
            self._timer_of = found.get("timer_of")

    def forget(self) -> None:
        self._states.pop(self.key, None)
        self._jobs.pop(self.key, None)

    def schedule_removal(self) -> None:
        """Called by the framework when the conversation handles the update."""
        self.has_moved = True

    def set_timer(self) -> None:
        """Set, move or cancel the timer of the timeout with the update, if the conversation has handled it."""
        if not self.has_moved:
            return
        ctx, conversation, name = current(), self._conversation, plain(self.name)
        assert ctx.stored  # noqa: S101  its data was read
        timers = Timers(ctx.update, ctx.timer_plan, ctx.stored)
        if conversation.has_timer and self.key in self._states:
            self._timer_of, in_ms = self._update_id, round((conversation.timeout_s or 0) * 1000)
            timers.stage(ctx.stored, KIND, name, {TIMEOUT: conversation.name, "update": ctx.update}, None, in_ms)
        elif self._timer_of is not None:
            timers.cancel(name)
            self._timer_of = None

    def is_timed_out(self, name: str) -> bool:
        """True if it is a state of this conversation, and its timer was not moved or cancelled since it was due."""
        return name == self._conversation.name and self.key in self._states and self._timer_of == self._update_id


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
            yield Position(conversation, key, update)


def _places_of(handler: Any, update: Any) -> tuple[storage.Place, ...]:
    """The chat of the update, and its user if each user has a conversation, first if it is the same in all chats."""
    if not handler.per_user:
        return (None,)
    user = f"user:{update.effective_user.id}"
    return (None, user) if handler.per_chat else (user, None)


def _first_safe(places: tuple[storage.Place, ...]) -> storage.Place:
    return next(filter(storage.is_safe, places), places[-1])


@cache
def _warn_of_slots(kind: str) -> None:
    log.warning("%s is not stored, because it has no __dict__: use a dict, or a class without __slots__", kind)
