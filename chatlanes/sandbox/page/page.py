"""The page as a whole: its bot, what it hears of the workers, and what it sees in the lanes."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.exceptions import RedisError

from chatlanes.lanes.protocol.store import Store
from chatlanes.sandbox.page.bot import PageBot
from chatlanes.sandbox.page.lanes_shown import Workers, lanes_shown
from chatlanes.sandbox.page.listening import start_listening
from chatlanes.sandbox.page.people import NotDoneError
from chatlanes.sandbox.page.shown import chat_shown, message_shown
from chatlanes.sandbox.page.watch import Look, Watch
from chatlanes.settings import Settings
from chatlanes.updates.connection import connect_to


class Page:
    """One for each process."""

    def __init__(self, bot: PageBot, settings: Settings) -> None:
        self.bot = bot
        self._settings = settings
        self._look: Look | None = None
        self._lanes: dict[str, Any] = {}
        self._listening: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Called on the loop that serves."""
        self._listening = asyncio.get_running_loop().create_task(self.bot.backstage.listen())
        start_listening(self.bot.fates.hear)
        Watch(self._settings, self._asks, self._saw).start()

    def _asks(self) -> frozenset[str] | None:
        asked = self.bot.fates.asks()
        return asked if asked or len(self.bot.feed) else None

    def _saw(self, look: Look) -> None:
        self._look = look
        self.bot.fates.see(look, self.bot.updates.first_id)
        lanes = self.lanes()
        if lanes != self._lanes:
            self._lanes = lanes
            self.bot.feed.tell("lanes", lanes)

    def lanes(self) -> dict[str, Any]:
        titles = {chat.id: chat.title for chat in self.bot.book.chats.values()}
        ledger, backstage = self.bot.fates.ledger, self.bot.backstage
        return {
            **lanes_shown(self._look, self.bot.me()["id"], titles, self._workers()),
            "killed": backstage.killed,
            "lost": ledger.lost,
            "out_of_order": ledger.out_of_order,
            "repeated": ledger.repeated,
            "uncertain": ledger.uncertain,
        }

    def _workers(self) -> Workers:
        return Workers(self.bot.backstage.workers, self.bot.backstage.names)

    def snapshot(self) -> dict[str, Any]:
        me, book = self.bot.me(), self.bot.book
        about = {"id": me["id"], "username": me["username"], "first_name": me["first_name"], "path": self._settings.bot}
        return {
            "bot": about,
            "chats": [chat_shown(chat, book.users) for chat in book.chats.values()],
            "messages": [message_shown(said, self.bot.fates.lives) for said in book.last()],
            "lanes": self.lanes(),
            "problems": list(self.bot.backstage.problems.values()),
        }

    def update(self, update_id: int) -> dict[str, Any] | None:
        """All there is of one; None: nothing."""
        update, life = self.bot.records.update(update_id), self.bot.fates.lives.get(update_id)
        if update is None:
            return None
        names = ("telegram_s", "appended_s", "started_s", "ended_s")
        return {
            "update": update,
            "state": life and life.state,
            "attempt": life.attempt if life else 0,
            "times": {name: getattr(life, name, None) for name in names},
            "worker": life and life.worker,
            "calls": self.bot.records.calls_of(update_id),
            "traceback": life and life.traceback,
        }

    def kill(self, name: str | None) -> dict[str, Any]:
        killed = self.bot.backstage.kill(name, self._workers().busy(self._look))
        if killed is None:
            raise NotDoneError(f"{name} is not running at the moment" if name else "no worker is running at the moment")
        return killed

    async def replay(self, update_id: int) -> None:
        """Put a buried one back at the end of its lanes."""

        def replayed() -> bool:
            with connect_to(self._settings) as client:
                return Store(client).replay(f"{self.bot.me()['id']}:{update_id}")

        try:
            was_buried = await asyncio.to_thread(replayed)
        except RedisError as error:
            raise NotDoneError(f"Redis does not answer: {error}") from error
        if not was_buried:
            raise NotDoneError(f"update {update_id} is not buried")
        self.bot.fates.replayed(update_id)
