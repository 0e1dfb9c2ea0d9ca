"""The simulated bot with a page: what people do there becomes updates, and what the bot does there is seen.

Promises that an update which no poller has confirmed is given out again after a restart. Streamed updates are not kept.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from functools import partial
from typing import Any

from sandbox.page.book import Book, Chat, Said
from sandbox.page.calls import PageChats, Stage
from sandbox.page.feed import Feed
from sandbox.page.files import PageFiles
from sandbox.page.kept import Kept
from sandbox.page.lives import Life, Lives, life_from
from sandbox.page.shown import chat_shown, message_shown
from sandbox.simulator.bot import SimulatedBot
from sandbox.simulator.chats import Params, RefusedError
from sandbox.simulator.polls import Gone
from sandbox.simulator.stream import Update
from sandbox.simulator.updates import kind_of

#: Chats that are there at the first start.
FIRST_PEOPLE = ("Ann", "Ben")
FIRST_GROUP = "Ann and Ben"


class PageBot(SimulatedBot):
    """Its page's chats, messages and updates are in `kept`."""

    def __init__(self, token: str, kept: Kept, first_update_id: int) -> None:
        self.kept = kept
        self.feed = Feed()
        self.stage = Stage(self.feed.tell)
        self.lives = Lives()
        for life in map(life_from, kept.lives()):
            self.lives.add(life)
        self.book = Book(kept, self._show)
        super().__init__(token, first_update_id=max(first_update_id, kept.last_update_id() + 1, kept.noted("next", 0)))
        self._deliver_again()
        if not self.book.chats:
            self._open_first_chats()

    def _begin(self) -> None:
        super()._begin()
        self.files = PageFiles(self.kept)
        self.chats = PageChats(self.me(), self.files, self.book, self.stage)

    def _open_first_chats(self) -> None:
        for name in FIRST_PEOPLE:
            self.book.private_chat(name)
        self.book.group(FIRST_GROUP, list(FIRST_PEOPLE))

    def _deliver_again(self) -> None:
        """Under their own ids, before any new one."""
        confirmed = self.kept.noted("confirmed", 0)
        following = self.updates.next_id
        for update in self.kept.updates_from(confirmed):
            self.updates.add(update)
        self.updates.next_id = max(following, self.updates.next_id)

    # ── what the bot asks for ──

    async def get_updates(self, params: Params, gone: Gone) -> list[bytes]:
        before = self.updates.confirmed
        given = await super().get_updates(params, gone)
        if self.updates.confirmed > before:
            self.kept.note("confirmed", self.updates.first_id)
            self.kept.note("next", self.updates.next_id)
        return given

    def carry_out(self, call: dict[str, Any]) -> Any:
        self.stage.answers = self._update_id(call)
        answer: Any = None
        status = 200
        try:
            answer = super().carry_out(call)
        except RefusedError as refused:
            answer, status = {"ok": False, "error_code": 400, "description": str(refused)}, 400
            raise
        finally:
            if self.stage.answers is not None:
                self._note(self.stage.answers, call, answer, status)
        return answer

    def _update_id(self, call: dict[str, Any]) -> int | None:
        """Of ours only."""
        bot, _, number = str(call.get("update", "")).partition(":")
        return int(number) if number.isdecimal() and bot == str(self.me()["id"]) else None

    def _note(self, update_id: int, call: dict[str, Any], answer: Any, status: int) -> None:
        noted = {"at_s": call["at"], "method": call["method"], "params": call["params"]}
        life = self.lives.get(update_id)
        if life is not None and life.chat_id:
            self.kept.put_call(update_id, {**noted, "answer": answer, "status": status})

    # ── what people do ──

    def say(self, chat: Chat, said: Said) -> Said:
        """A message that is new, or edited."""
        kind = "edited_message" if said.edited else "message"
        update_id = self.tell_bot({kind: said.raw}, chat)
        if update_id is not None:
            said.update_ids.append(update_id)
        return self.book.put(said)

    def press(self, chat: Chat, said: Said, query: dict[str, Any]) -> int | None:
        self.stage.queries[query["id"]] = chat.id, query["from"]["id"]
        update_id = self.tell_bot({"callback_query": query}, chat)
        if update_id is not None:
            press = {"user_id": query["from"]["id"], "data": query["data"], "update_id": update_id}
            said.presses = [*said.presses[-9:], press]
            self.book.put(said)
        return update_id

    def tell_bot(self, update: Update, chat: Chat) -> int | None:
        """Its update_id; None when the bot did not ask for this kind."""
        [update_id] = self.deliver([update])
        if update_id is None:
            text = f"The bot is not told: ALLOWED_UPDATES leaves {kind_of(update)} out."
            self.feed.tell("notice", {"chat_id": chat.id, "user_id": None, "text": text, "alert": False})
            return None
        life = self.lives.add(Life(update_id, time.time(), chat.id))
        self.kept.put_update(update_id, {"update_id": update_id, **update})
        self.kept.put_life(update_id, asdict(life))
        return update_id

    def lived(self, life: Life) -> None:
        """Something is new in the life of an update."""
        if life.chat_id:
            self.kept.put_life(life.update_id, asdict(life))
            for said in self.book.of_update(life.update_id, life.chat_id):
                self._show(said)

    # ── what is seen ──

    def _show(self, changed: Chat | Said) -> None:
        if not len(self.feed):
            return
        if isinstance(changed, Chat):
            self.feed.tell("chat", chat_shown(changed, self.book.users))
        else:
            self.feed.tell("message", message_shown(changed, self.lives))

    def snapshot(self) -> dict[str, Any]:
        return {
            "chats": [chat_shown(chat, self.book.users) for chat in self.book.chats.values()],
            "messages": list(map(partial(message_shown, lives=self.lives), self.book.last())),
        }
