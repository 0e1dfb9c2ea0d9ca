"""What python-telegram-bot remembers, kept with the update: chat_data, user_data, and where conversations stand.

Promises that an update sees what the updates before it left, on whichever worker they ran, and that a failed attempt
leaves nothing. All of it is JSON. With ORDER_BY=chat the user_data of a group is apart from that of the user's own
chat, for two updates could write it at once; with chat+user it is the user's everywhere. bot_data is each process's
own. An application with a persistence of its own keeps that instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from telegram import Update
from telegram.ext import Application, ConversationHandler

from tasks.bot.adapters import kept

log = logging.getLogger(__name__)


class DataKeeper:
    """Of one application."""

    def __init__(
        self,
        application: Application[Any, Any, Any, Any, Any, Any],
        conversations: Mapping[str, ConversationHandler[Any]],
    ) -> None:
        self._application = application
        self._conversations = conversations
        self._turns = Turns()
        if application.persistence:
            log.warning("the application's own persistence is used: its files or tables must bear several processes")

    @asynccontextmanager
    async def kept(self, update: Update) -> AsyncIterator[None]:
        """Around the processing of an update: read before it, handed over for the settle after it, then forgotten."""
        if self._application.persistence:
            yield
            await self._application.update_persistence()
            return
        async with self._turns.taken(_ids(update)):
            before = await asyncio.to_thread(self._read, update)
            try:
                yield
                await asyncio.to_thread(self._keep, update, before)
            finally:
                self._forget(update)

    def _read(self, update: Update) -> dict[str, str]:
        """Gives what was kept under each name, as text."""
        before = {}
        for place, name, data in self._data(update):
            found = kept.load(place, name) if kept.is_safe(place) else None
            data.clear()
            data.update(found or {})
            before[name] = kept.text(found or {})
        for name, handler, key in self._positions(update):
            found = kept.load(None, name) if kept.is_safe(None) else None
            handler._conversations.pop(key, None)
            if found is not None:
                handler._conversations[key] = found["state"]
            before[name] = kept.text(found)
        return before

    def _keep(self, update: Update, before: Mapping[str, str]) -> None:
        """Raises TypeError for what is no JSON, and UnsafeKeyError for what another update could write."""
        for place, name, data in self._data(update):
            if kept.text(data) != before[name]:
                kept.keep(place, name, dict(data) or None)
        for name, handler, key in self._positions(update):
            state = {"state": handler._conversations[key]} if key in handler._conversations else None
            if kept.text(state) != before[name]:
                kept.keep(None, name, state)

    def _forget(self, update: Update) -> None:
        """Memory is proportional to what runs, not to all who ever wrote."""
        for _, handler, key in self._positions(update):
            handler._conversations.pop(key, None)
        if update.effective_chat:
            self._application._chat_data.pop(update.effective_chat.id, None)
        if update.effective_user:
            self._application._user_data.pop(update.effective_user.id, None)

    def _data(self, update: Update) -> Iterable[tuple[str | None, str, dict[Any, Any]]]:
        """Where it is kept, under which name, and what it is here."""
        chat, user = update.effective_chat, update.effective_user
        if chat and isinstance(data := self._application.chat_data[chat.id], dict):
            yield None, "ptb:chat", data
        if user and isinstance(data := self._application.user_data[user.id], dict):
            own = f"user:{user.id}"
            yield own if kept.is_safe(own) else None, f"ptb:user:{user.id}", data

    def _positions(self, update: Update) -> Iterable[tuple[str, ConversationHandler[Any], Any]]:
        for name, handler in self._conversations.items():
            try:
                key = handler._get_key(update)
            except RuntimeError:  # no update for this conversation: it has no chat, user or message
                continue
            yield f"ptb:conversation:{name}:{':'.join(map(str, key))}", handler, key


class Turns:
    """Updates that share a chat or a user take turns in this process: the framework has one dict for each of them."""

    def __init__(self) -> None:
        self._locks: dict[int, asyncio.Lock] = {}
        self._wanted: Counter[int] = Counter()

    @asynccontextmanager
    async def taken(self, ids: Iterable[int]) -> AsyncIterator[None]:
        """In one order for all, so that no two wait for each other."""
        ordered = sorted(set(ids))
        self._wanted.update(ordered)
        async with AsyncExitStack() as stack:
            stack.callback(self._drop, ordered)
            for each in ordered:
                await stack.enter_async_context(self._locks.setdefault(each, asyncio.Lock()))
            yield

    def _drop(self, ids: Iterable[int]) -> None:
        self._wanted.subtract(ids)
        for each in ids:
            if not self._wanted[each]:
                del self._wanted[each]
                self._locks.pop(each, None)


def _ids(update: Update) -> list[int]:
    return [each.id for each in (update.effective_chat, update.effective_user) if each]
