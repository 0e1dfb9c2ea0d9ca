"""The simulated bot with a page: actions of users become updates, and the bot's calls change the chats.

An update that no poller has confirmed is delivered again after a restart, except those of a stream. Every open page
gets a snapshot, then every change in order, as server-sent events. A page that cannot keep up is disconnected; it
reconnects and gets a snapshot again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import orjson

from chatlanes.updates import KeysError, keys_of
from chatlanes_sandbox.channel import SupervisorChannel
from chatlanes_sandbox.page.calls import PageChats
from chatlanes_sandbox.page.history import Chat, ChatHistory, ChatMessage
from chatlanes_sandbox.page.order_audit import OrderAudit
from chatlanes_sandbox.page.progress import UpdateProgress
from chatlanes_sandbox.page.storage import PageFiles, PageStorage, UpdateLog
from chatlanes_sandbox.page.tracker import UpdateTracker, problem_of
from chatlanes_sandbox.page.user_actions import flood_of, message_of, pressed, said_content, said_text
from chatlanes_sandbox.page.views import chat_shown, message_shown
from chatlanes_sandbox.simulator.bot import SimulatedBot
from chatlanes_sandbox.simulator.calls.chats import data_of
from chatlanes_sandbox.simulator.calls.params import Params, RefusedError, gives_message
from chatlanes_sandbox.simulator.stream import Update
from chatlanes_sandbox.simulator.updates import Gone, kind_of

#: Events that a page may be behind: more than a flood makes while a page draws.
MOST_BEHIND = 20_000
#: Time without events after which a comment is sent, so that a lost connection is noticed.
QUIET_S = 15.0


class EventStream:
    """The open pages."""

    def __init__(self) -> None:
        self._open: set[asyncio.Queue[bytes]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def publish(self, kind: str, value: Any) -> None:
        if not self._open:
            return
        event = _event(kind, value)
        for pages in list(self._open):
            if pages.qsize() > MOST_BEHIND:
                self._open.discard(pages)
            pages.put_nowait(event)

    async def follow(self, snapshot: Callable[[], Any]) -> AsyncIterator[bytes]:
        """The events for one page, until it is closed."""
        events: asyncio.Queue[bytes] = asyncio.Queue()
        self._open.add(events)
        try:
            yield b"retry: 500\n\n" + _event("snapshot", snapshot())
            while events in self._open or not events.empty():
                event = b": still here\n\n"
                with suppress(TimeoutError):
                    event = await asyncio.wait_for(events.get(), QUIET_S)
                while not events.empty():
                    event += events.get_nowait()
                yield event
        finally:
            self._open.discard(events)


def _event(kind: str, value: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps(value))


#: The chats of the first start.
FIRST_PEOPLE = ("Ann", "Ben")
FIRST_GROUP = "Ann and Ben"
#: The origin of an update that belongs to no chat of the page.
OTHER_CHATS = "one of the other chats"
#: Streamed updates after the last stored position are forgotten at a restart, but the lanes remember their ids, and
#: would drop others with the same ids.
IDS_BETWEEN_RUNS = 10_000


class PageBot(SimulatedBot):
    """Its page's chats, messages and updates are in `storage`. `order_by` is the setting; `audit` the one to use."""

    def __init__(
        self,
        token: str,
        storage: PageStorage,
        *,
        first_update_id: int,
        order_by: str = "chat",
        audit: OrderAudit | None = None,
        quirks: bool = True,
    ) -> None:
        self.storage = storage
        self.events = EventStream()
        self.supervisor = SupervisorChannel(self.events.publish)
        #: Broadcast -> its messages to chats that the page does not have, since this process has started.
        self.elsewhere: Counter[str] = Counter()
        self._order_by = "" if ":" in order_by else order_by  # a function of the bot's own is not imported here
        bot_id = int(token.partition(":")[0])
        self.tracker = UpdateTracker(storage, bot_id, self._progressed, self._failed, audit)
        self.history = ChatHistory(storage, self._show)
        self.update_log = UpdateLog(storage)
        known = max(storage.last_update_id(), storage.noted("next", 0))
        super().__init__(token, quirks=quirks, first_update_id=known + IDS_BETWEEN_RUNS if known else first_update_id)
        self._deliver_again()
        if not self.history.chats:
            self._open_first_chats()

    def _begin(self) -> None:
        super()._begin()
        self.files = PageFiles(self.storage)
        self.chats: PageChats = PageChats(self.user(), self.files, self.history, self.events.publish)

    def _open_first_chats(self) -> None:
        for name in FIRST_PEOPLE:
            self.history.private_chat(name)
        self.history.group(FIRST_GROUP, list(FIRST_PEOPLE))

    def _deliver_again(self) -> None:
        """Under their own ids, before any new one."""
        following = self.updates.next_id
        for update in self.storage.updates_from(self.storage.noted("confirmed", 0)):
            self.updates.add(update)
            self.tracker.audit.give(update["update_id"], self._lanes_of(update))
        self.updates.next_id = max(following, self.updates.next_id)

    def _lanes_of(self, update: Update) -> list[str]:
        try:
            return keys_of(update, self._order_by) if self._order_by else []
        except KeysError:
            return []

    # ── the bot's calls ──

    async def get_updates(self, params: Params, gone: Gone) -> list[bytes]:
        first, before = self.updates.first_id, self.updates.confirmed
        given = await super().get_updates(params, gone)
        if self.updates.confirmed > before:
            self.tracker.confirmed(first, self.updates.first_id)
            self.storage.note("confirmed", self.updates.first_id)
            self.storage.note("next", self.updates.next_id)
        return given

    def carry_out(self, call: dict[str, Any]) -> Any:
        update_id = self.chats.answers = self._update_id(call)
        answer, status = None, 200
        try:
            answer = super().carry_out(call)
            self._count_elsewhere(call)
            if update_id is not None:
                self.tracker.audit.called(update_id, call["method"], call["params"], call.get("place", ""))
        except RefusedError as refused:
            answer, status = str(refused), 400
            raise
        finally:
            if update_id is not None:
                self.update_log.add_call(update_id, call, answer, status)
        return answer

    def _count_elsewhere(self, call: dict[str, Any]) -> None:
        """A message of a broadcast to a chat that the page does not have."""
        _, _, rest = str(call.get("update", "")).partition(":broadcast:")
        chat_id = str(call["params"].get("chat_id", ""))
        if rest and gives_message(call["method"]) and chat_id not in map(str, self.history.chats):
            self.elsewhere[rest.partition(":")[0]] += 1

    def _update_id(self, call: dict[str, Any]) -> int | None:
        """None for an update of another bot."""
        bot, _, number = str(call.get("update", "")).partition(":")
        return int(number) if number.isdecimal() and bot == str(self.me()["id"]) else None

    # ── users' actions ──

    def deliver(self, updates: list[Update]) -> list[int | None]:
        """Deliver streamed or posted updates; those of the page go through `deliver_to_bot`."""
        ids = super().deliver(updates)
        self.storage.note("next", self.updates.next_id)  # no id is given twice, although these are not stored
        for update_id, update in zip(ids, updates, strict=True):
            if update_id is not None:
                self._pass(update_id, update)
        return ids

    def _pass(self, update_id: int, update: Update, *, is_flood: bool = False) -> None:
        self.update_log.add(update_id, update, is_stored=False)
        self._track(UpdateProgress(update_id, time.time()), update, is_flood=is_flood)

    def _track(self, progress: UpdateProgress, update: Update, *, is_flood: bool) -> None:
        self.tracker.begin(progress)
        self.tracker.audit.give(progress.update_id, self._lanes_of(update), is_flood=is_flood)

    def say(self, chat: Chat, said: ChatMessage, *, is_flood: bool = False) -> ChatMessage:
        """Deliver a new or edited message."""
        kind = "edited_message" if said.edited else "message"
        update_id = self.deliver_to_bot({kind: said.raw}, chat, is_flood=is_flood)
        if update_id is not None:
            said.update_ids.append(update_id)
        return self.history.put(said)

    def press(self, chat: Chat, said: ChatMessage, query: dict[str, Any]) -> int | None:
        self.chats.queries[query["id"]] = chat.id, query["from"]["id"]
        update_id = self.deliver_to_bot({"callback_query": query}, chat)
        if update_id is not None:
            press = {"user_id": query["from"]["id"], "data": query["data"], "update_id": update_id}
            said.presses = [*said.presses[-9:], press]
            self.history.put(said)
        return update_id

    def write(
        self, chat_id: int, user_id: int, content: dict[str, Any], *, is_ephemeral: bool = False
    ) -> Update | None:
        chat = self.history.chats.get(chat_id)
        if chat is None:
            return super().write(chat_id, user_id, content, is_ephemeral=is_ephemeral)
        said = self.say(chat, said_content(self.history, chat, user_id, content, is_ephemeral=is_ephemeral))
        return {"update_id": said.update_ids[-1], "message": said.raw} if said.update_ids else None

    def press_button(self, chat_id: int, user_id: int, message_id: int, button: str) -> Update | None:
        chat, said = self.history.chats.get(chat_id), self.history.message(chat_id, message_id)
        if chat is None or said is None:
            return super().press_button(chat_id, user_id, message_id, button)
        query = pressed(self.history, chat, user_id, said, data_of(said.raw, button))
        update_id = self.press(chat, said, query)
        return None if update_id is None else {"update_id": update_id, "callback_query": query}

    def press_stop(self, chat_id: int, thread: int = 0) -> Update | None:
        chat = self.history.chats.get(chat_id)
        if chat is None:
            return super().press_stop(chat_id, thread)
        update: Update = {"stopped_message_generation": self.chats.stopped(chat_id, thread)}
        update_id = self.deliver_to_bot(update, chat)
        return None if update_id is None else {"update_id": update_id, **update}

    def flood(self, count: int) -> None:
        for chat, user, text in flood_of(count, self.history):
            if chat:
                self.say(chat, said_text(self.history, chat, user["id"], text), is_flood=True)
                continue
            update = {"message": message_of(user, self.updates.next_id, text)}
            [update_id] = super().deliver([update])
            if update_id is not None:
                self._pass(update_id, update, is_flood=True)

    def deliver_to_bot(self, update: Update, chat: Chat, *, is_flood: bool = False) -> int | None:
        """Returns the update_id; None if the bot did not ask for this kind."""
        [update_id] = super().deliver([update])
        if update_id is None:
            text = f"The bot does not receive this: ALLOWED_UPDATES excludes {kind_of(update)}."
            self.events.publish("notice", {"chat_id": chat.id, "user_id": None, "text": text, "alert": False})
            return None
        self.update_log.add(update_id, update, is_stored=True)
        self._track(UpdateProgress(update_id, time.time(), chat.id), update, is_flood=is_flood)
        return update_id

    # ── events for the pages ──

    def _show(self, changed: Chat | ChatMessage) -> None:
        if not len(self.events):
            return
        if isinstance(changed, Chat):
            self.events.publish("chat", chat_shown(changed, self.history.users))
        else:
            self.events.publish("message", message_shown(changed, self.tracker.progress_table))

    def _progressed(self, progress: UpdateProgress) -> None:
        for update_id in progress.group or [progress.update_id]:
            said = self.history.of_update(update_id)
            if said:
                self._show(said)

    def _failed(self, progress: UpdateProgress, attempt: int) -> None:
        chat = self.history.chats.get(progress.chat_id)
        self.supervisor.add_problem({**problem_of(progress, attempt), "chat": chat.title if chat else OTHER_CHATS})

    def stats(self) -> dict[str, Any]:
        return {**super().stats(), "answers": self.tracker.audit.summary()}
