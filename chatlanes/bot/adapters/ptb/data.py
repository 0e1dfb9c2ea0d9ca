"""chat_data, user_data and conversations of python-telegram-bot: read before an update, stored with it.

Guarantees that an update sees what the updates before it left, on whichever worker they ran, and that a failed attempt
leaves nothing. storage_json.py says what can be stored. bot_data belongs to each process. An application with a
persistence of its own keeps its data there, except one that serves a single process: that is replaced.
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
from chatlanes.bot.adapters.ptb.slots import Slot, data_of, positions_of
from chatlanes.bot.context import Context
from chatlanes.lanes.worker.executor import blocking_executor

log = logging.getLogger(__name__)


def replace_persistence(application: AnyApplication) -> None:
    """One file, or one memory, cannot serve several processes."""
    own = application.persistence
    if type(own) in (PicklePersistence, DictPersistence):
        application.persistence = None
        log.warning(
            "%s is not used, nor read: chat_data, user_data and conversations are kept in Redis, with each update; "
            "bot_data is not kept (docs/migrate/python-telegram-bot.md brings what it holds)",
            type(own).__name__,
        )
    elif own:
        log.warning("the application's own persistence is used: what it writes must bear several processes")


class DataKeeper:
    """Of one application that has started."""

    def __init__(self, application: AnyApplication) -> None:
        self._application = application
        self._conversations = conversations_of(application)
        self._locks_of_chats = PerChatLock()
        self._bot_data = _names_in(application.bot_data)
        self._is_silent = bool(application.persistence)

    def read_ahead(self, ctx: Context) -> None:
        """What is read for an update like this, as far as it can be told without the framework's own object."""
        storage.read_ahead(_places(self._slots(_Outline(_known(ctx.chat_id), _known(ctx.user_id)))))

    @asynccontextmanager
    async def kept(self, update: Update) -> AsyncIterator[None]:
        """Around the processing of an update: read before it, handed over for the settle after it, then forgotten."""
        ids = {each.id for each in (update.effective_chat, update.effective_user) if each}
        async with self._locks_of_chats.taken(ids):
            slots = self._slots(update)
            try:
                before = await _read(slots)
                yield
                _keep(slots, before)
                if self._application.persistence:
                    await self._application.update_persistence()
            finally:
                for each in slots:
                    each.forget()
                self._look_around()

    def _slots(self, update: Any) -> list[Slot]:
        data = () if self._application.persistence else data_of(self._application, update)
        return [*data, *positions_of(self._conversations, update)]

    def _look_around(self) -> None:
        """Says once what a bot wrote that is not kept."""
        application = self._application
        if self._is_silent:
            return
        if names := _names_in(application.bot_data) - self._bot_data:
            self._warn("bot_data[%r] was set by a handler: bot_data is each process's own, and not kept", min(names))
        for name, of_all in (("chat_data", application._chat_data), ("user_data", application._user_data)):
            for stranger in self._locks_of_chats.unused(of_all):
                of_all.pop(stranger, None)
                self._warn("application.%s[%d] is not kept: an update has only its own", name, stranger)

    def _warn(self, sentence: str, *details: object) -> None:
        self._is_silent = True
        log.warning(sentence + "; keep what many chats share in a database of your own", *details)


class _Outline(NamedTuple):
    """Of an Update: all that the keys of what is kept depend on, as a rule."""

    effective_chat: Any
    effective_user: Any
    callback_query: None = None


def _known(number: int | None) -> Any:
    return None if number is None else SimpleNamespace(id=number)


def _places(slots: Iterable[Slot]) -> list[tuple[storage.Place, str]]:
    return [(place, each.name) for each in slots for place in each.places]


async def _read(slots: Iterable[Slot]) -> dict[str, str]:
    """Gives what was there under each name, as text."""
    if storage.is_wanting(wanted := _places(slots)):
        await blocking_executor().call(partial(storage.fetch, wanted))
    for each in slots:
        each.fill(storage.load(each.place, each.name) if storage.is_safe(each.place) else None)
    return {each.name: storage_json.text(each.value, each.name) for each in slots}


def _keep(slots: Iterable[Slot], before: Mapping[str, str]) -> None:
    """Raises TypeError for what is no JSON, and UnsafeKeyError for what another update could write."""
    for each in slots:
        is_timed = each.ttl_s is not None and each.value is not None
        if is_timed or storage_json.text(each.value, each.name) != before[each.name]:
            storage.keep(each.place, each.name, each.value, each.ttl_s)


def _names_in(bot_data: object) -> set[str]:
    return set(map(str, bot_data)) if isinstance(bot_data, dict) else set()


class PerChatLock:
    """Runs the updates of one process that share a chat or a user one after another, on one event loop: their framework
    has one dict for each.
    """

    def __init__(self) -> None:
        self._locks: dict[int, asyncio.Lock] = {}
        self._wanted: Counter[int] = Counter()

    @asynccontextmanager
    async def taken(self, ids: Iterable[int]) -> AsyncIterator[None]:
        """Acquired in sorted order, so that there is no deadlock."""
        ordered = sorted(set(ids))
        self._wanted.update(ordered)
        async with AsyncExitStack() as stack:
            stack.callback(self._drop, ordered)
            for each in ordered:
                await stack.enter_async_context(self._locks.setdefault(each, asyncio.Lock()))
            yield

    def unused(self, ids: Iterable[int]) -> list[int]:
        """Those that no update holds or waits for."""
        return [each for each in list(ids) if each not in self._wanted]

    def _drop(self, ids: Iterable[int]) -> None:
        self._wanted.subtract(ids)
        for each in ids:
            if not self._wanted[each]:
                del self._wanted[each]
                self._locks.pop(each, None)
