"""chat_data, user_data and conversations of python-telegram-bot: read before an update, stored with it.

An update sees the data of all updates before it, on any worker; a failed attempt stores nothing. storage_json.py lists
the types that can be stored; bot_data is local to each process and not stored. An application's own persistence is
used, except one for a single process, which is replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from telegram import Update
from telegram.ext import DictPersistence, PicklePersistence

from chatlanes.bot.adapters import storage, storage_json
from chatlanes.bot.adapters.ptb.conversations import AnyApplication, conversations_of
from chatlanes.bot.adapters.ptb.job_storage import KIND
from chatlanes.bot.adapters.ptb.slots import Position, Slot, data_of, positions_of
from chatlanes.bot.context import Context
from chatlanes.lanes.worker.executor import blocking_executor

log = logging.getLogger(__name__)


def replace_persistence(application: AnyApplication) -> None:
    """Replace a persistence in one file or in memory, which cannot serve several processes."""
    own = application.persistence
    if type(own) in (PicklePersistence, DictPersistence):
        application.persistence = None
        log.warning(
            "%s is neither used nor read: chat_data, user_data and conversations are stored in Redis with each update; "
            "bot_data is not stored (docs/migrate/python-telegram-bot.md explains how to import its data)",
            type(own).__name__,
        )
    elif own:
        log.warning("the application's own persistence is used: it must support several processes that write to it")


class DataKeeper:
    """Reads and stores the data of one started application."""

    def __init__(self, application: AnyApplication) -> None:
        self._application = application
        self._conversations = conversations_of(application)
        self._locks_of_chats = PerChatLock()
        self._bot_data = _names_in(application.bot_data)
        self._has_warned = bool(application.persistence)

    def read_ahead(self, ctx: Context) -> None:
        """Fetch the data that an update like this will probably need, before the framework's object is created."""
        storage.read_ahead(_places(self._slots(Outline.of(ctx.chat_id, ctx.user_id), is_job=ctx.kind == KIND)))

    @asynccontextmanager
    async def kept(self, update: Update | Outline, *, is_job: bool = False) -> AsyncIterator[list[Slot]]:
        """Wraps the processing of an update or a job: its data is read before, staged for the settle after, then
        removed from memory.
        """
        ids = {each.id for each in (update.effective_chat, update.effective_user) if each}
        async with self._locks_of_chats.taken(ids):
            slots = self._slots(update, is_job=is_job)
            try:
                before = await _read(slots)
                yield slots
                _keep(slots, before)
                if self._application.persistence:
                    await self._application.update_persistence()
            finally:
                for each in slots:
                    each.forget()
                self._warn_of_unstored()

    def _slots(self, update: Any, *, is_job: bool) -> list[Slot]:
        """A job is not part of a conversation."""
        data = () if self._application.persistence else data_of(self._application, update)
        return [*data, *(() if is_job else positions_of(self._conversations, update))]

    def _warn_of_unstored(self) -> None:
        """Warn once if a handler wrote data that is not stored."""
        application = self._application
        if self._has_warned:
            return
        if names := _names_in(application.bot_data) - self._bot_data:
            self._warn("a handler set bot_data[%r]: bot_data is local to each process and not stored", min(names))
        for name, of_all in (("chat_data", application._chat_data), ("user_data", application._user_data)):
            for stranger in self._locks_of_chats.unused(of_all):
                of_all.pop(stranger, None)
                self._warn("application.%s[%d] is not stored: an update can change only its own", name, stranger)

    def _warn(self, sentence: str, *details: object) -> None:
        self._has_warned = True
        log.warning(sentence + "; store data that chats share in a database of your own", *details)


class Outline(NamedTuple):
    """The attributes of an Update that the storage keys usually depend on."""

    effective_chat: Any
    effective_user: Any
    callback_query: None = None
    update_id: int = 0

    @classmethod
    def of(cls, chat_id: int | None, user_id: int | None) -> Outline:
        return cls(_known(chat_id), _known(user_id))


def _known(number: int | None) -> Any:
    return None if number is None else SimpleNamespace(id=number)


def _places(slots: Iterable[Slot]) -> list[tuple[storage.Place, str]]:
    return [(place, each.name) for each in slots for place in each.places]


async def _read(slots: Iterable[Slot]) -> dict[str, str]:
    """Load the slots; returns the value of each, encoded."""
    if storage.is_unread(wanted := _places(slots)):
        await blocking_executor().call(partial(storage.fetch, wanted))
    for each in slots:
        each.fill(storage.load(each.place, each.name) if storage.is_safe(each.place) else None)
    return {each.name: storage_json.text(each.value, each.name) for each in slots}


def _keep(slots: Iterable[Slot], before: Mapping[str, str]) -> None:
    """Stage changed values. Raises TypeError for a value that cannot be encoded, and UnsafeKeyError for a key that
    another update could write.
    """
    for each in slots:
        if isinstance(each, Position):
            each.set_timer()
        is_renewed = each.has_moved and each.value is not None
        if is_renewed or storage_json.text(each.value, each.name) != before[each.name]:
            storage.keep(each.place, each.name, each.value, each.ttl_s)


def _names_in(bot_data: object) -> set[str]:
    return set(map(str, bot_data)) if isinstance(bot_data, dict) else set()


class PerChatLock:
    """Runs the updates of one process that share a chat or a user one after another, on one event loop, because the
    framework has one dict for each chat and user.
    """

    def __init__(self) -> None:
        self._locks: dict[int, asyncio.Lock] = {}
        self._wanted: Counter[int] = Counter()

    @asynccontextmanager
    async def taken(self, ids: Iterable[int]) -> AsyncIterator[None]:
        """Holds the locks of these ids. They are acquired in sorted order, which avoids deadlocks."""
        ordered = sorted(set(ids))
        self._wanted.update(ordered)
        async with AsyncExitStack() as stack:
            stack.callback(self._drop, ordered)
            for each in ordered:
                await stack.enter_async_context(self._locks.setdefault(each, asyncio.Lock()))
            yield

    def unused(self, ids: Iterable[int]) -> list[int]:
        """The ids that no update holds or waits for."""
        return [each for each in list(ids) if each not in self._wanted]

    def _drop(self, ids: Iterable[int]) -> None:
        self._wanted.subtract(ids)
        for each in ids:
            if not self._wanted[each]:
                del self._wanted[each]
                self._locks.pop(each, None)
