"""The simulated bot with a page: what people do there becomes updates, and what the bot does there is seen.

Promises that an update which no poller has confirmed is given out again after a restart. Streamed updates are not kept.
"""

from __future__ import annotations

import time
from typing import Any

from chatlanes.sandbox.page.backstage import Backstage
from chatlanes.sandbox.page.book import Book, Chat, Said
from chatlanes.sandbox.page.calls import USER, PageChats
from chatlanes.sandbox.page.fates import Fates, problem_of
from chatlanes.sandbox.page.feed import Feed
from chatlanes.sandbox.page.files import PageFiles
from chatlanes.sandbox.page.flood import flood_of, message_of
from chatlanes.sandbox.page.kept import Kept
from chatlanes.sandbox.page.lives import Life
from chatlanes.sandbox.page.people import said_text
from chatlanes.sandbox.page.records import Records
from chatlanes.sandbox.page.scene import Scene
from chatlanes.sandbox.page.shown import chat_shown, message_shown
from chatlanes.sandbox.simulator.bot import SimulatedBot
from chatlanes.sandbox.simulator.params import Params, RefusedError
from chatlanes.sandbox.simulator.polls import Gone
from chatlanes.sandbox.simulator.stream import Update
from chatlanes.sandbox.simulator.updates import kind_of
from chatlanes.updates.routing import KeysError, keys_of

#: Chats that are there at the first start.
FIRST_PEOPLE = ("Ann", "Ben")
FIRST_GROUP = "Ann and Ben"
#: Streamed updates that came after the last note of what is next are not known any more, but the lanes remember their
#: ids, and would drop others that had them.
IDS_BETWEEN_RUNS = 10_000


class PageBot(SimulatedBot):
    """Its page's chats, messages and updates are in `kept`. `order_by` is the setting."""

    def __init__(
        self, token: str, kept: Kept, *, first_update_id: int, order_by: str = "chat", quirks: bool = True
    ) -> None:
        self.kept = kept
        self.feed = Feed()
        self.backstage = Backstage(self.feed.tell)
        self._order_by = "" if ":" in order_by else order_by  # a function of the bot's own: not ours to import
        self.fates = Fates(kept, int(token.partition(":")[0]), self._lived, self._failed)
        self.book = Book(kept, self._show)
        self.records = Records(kept)
        known = max(kept.last_update_id(), kept.noted("next", 0))
        super().__init__(token, quirks=quirks, first_update_id=known + IDS_BETWEEN_RUNS if known else first_update_id)
        self._deliver_again()
        if not self.book.chats:
            self._open_first_chats()

    def _begin(self) -> None:
        super()._begin()
        self.files = PageFiles(self.kept)
        me = {name: value for name, value in self.me().items() if name in USER}
        self.scene = Scene(me, self.book, self.files, self.feed.tell)
        self.chats = PageChats(self.scene)

    def _open_first_chats(self) -> None:
        for name in FIRST_PEOPLE:
            self.book.private_chat(name)
        self.book.group(FIRST_GROUP, list(FIRST_PEOPLE))

    def _deliver_again(self) -> None:
        """Under their own ids, before any new one."""
        following = self.updates.next_id
        for update in self.kept.updates_from(self.kept.noted("confirmed", 0)):
            self.updates.add(update)
            self.fates.ledger.give(update["update_id"], self._lanes_of(update))
        self.updates.next_id = max(following, self.updates.next_id)

    def _lanes_of(self, update: Update) -> list[str]:
        try:
            return keys_of(update, self._order_by) if self._order_by else []
        except KeysError:
            return []

    # ── what the bot asks for ──

    async def get_updates(self, params: Params, gone: Gone) -> list[bytes]:
        first, before = self.updates.first_id, self.updates.confirmed
        given = await super().get_updates(params, gone)
        if self.updates.confirmed > before:
            self.fates.confirmed(first, self.updates.first_id)
            self.kept.note("confirmed", self.updates.first_id)
            self.kept.note("next", self.updates.next_id)
        return given

    def carry_out(self, call: dict[str, Any]) -> Any:
        update_id = self.scene.answers = self._update_id(call)
        answer, status = None, 200
        try:
            answer = super().carry_out(call)
            if update_id is not None:
                self.fates.ledger.called(update_id, call["method"], call["params"], call.get("place", ""))
        except RefusedError as refused:
            answer, status = str(refused), 400
            raise
        finally:
            if update_id is not None:
                self.records.add_call(update_id, call, answer, status)
        return answer

    def _update_id(self, call: dict[str, Any]) -> int | None:
        """Of ours only."""
        bot, _, number = str(call.get("update", "")).partition(":")
        return int(number) if number.isdecimal() and bot == str(self.me()["id"]) else None

    # ── what people do ──

    def deliver(self, updates: list[Update]) -> list[int | None]:
        """Those of a stream, or posted; the page's own go through `tell_bot`."""
        ids = super().deliver(updates)
        for update_id, update in zip(ids, updates, strict=True):
            if update_id is not None:
                self._pass(update_id, update)
        return ids

    def _pass(self, update_id: int, update: Update, *, is_flood: bool = False) -> None:
        self.records.add(update_id, update, is_kept=False)
        self._begin_life(Life(update_id, time.time()), update, is_flood=is_flood)

    def _begin_life(self, life: Life, update: Update, *, is_flood: bool) -> None:
        self.fates.begin(life)
        self.fates.ledger.give(life.update_id, self._lanes_of(update), is_flood=is_flood)

    def say(self, chat: Chat, said: Said, *, is_flood: bool = False) -> Said:
        """A message that is new, or edited."""
        kind = "edited_message" if said.edited else "message"
        update_id = self.tell_bot({kind: said.raw}, chat, is_flood=is_flood)
        if update_id is not None:
            said.update_ids.append(update_id)
        return self.book.put(said)

    def press(self, chat: Chat, said: Said, query: dict[str, Any]) -> int | None:
        self.scene.queries[query["id"]] = chat.id, query["from"]["id"]
        update_id = self.tell_bot({"callback_query": query}, chat)
        if update_id is not None:
            press = {"user_id": query["from"]["id"], "data": query["data"], "update_id": update_id}
            said.presses = [*said.presses[-9:], press]
            self.book.put(said)
        return update_id

    def flood(self, count: int) -> None:
        for chat, user, text in flood_of(count, self.book):
            if chat:
                self.say(chat, said_text(self.book, chat, user["id"], text), is_flood=True)
                continue
            update = {"message": message_of(user, self.updates.next_id, text)}
            [update_id] = super().deliver([update])
            if update_id is not None:
                self._pass(update_id, update, is_flood=True)

    def tell_bot(self, update: Update, chat: Chat, *, is_flood: bool = False) -> int | None:
        """Its update_id; None when the bot did not ask for this kind."""
        [update_id] = super().deliver([update])
        if update_id is None:
            text = f"The bot is not told: ALLOWED_UPDATES leaves {kind_of(update)} out."
            self.feed.tell("notice", {"chat_id": chat.id, "user_id": None, "text": text, "alert": False})
            return None
        self.records.add(update_id, update, is_kept=True)
        self._begin_life(Life(update_id, time.time(), chat.id), update, is_flood=is_flood)
        return update_id

    # ── what is seen ──

    def _show(self, changed: Chat | Said) -> None:
        if not len(self.feed):
            return
        if isinstance(changed, Chat):
            self.feed.tell("chat", chat_shown(changed, self.book.users))
        else:
            self.feed.tell("message", message_shown(changed, self.fates.lives))

    def _lived(self, life: Life) -> None:
        said = self.book.of_update(life.update_id)
        if said:
            self._show(said)

    def _failed(self, life: Life) -> None:
        self.backstage.add_problem(problem_of(life))

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "answers": self.fates.ledger.summary()}
