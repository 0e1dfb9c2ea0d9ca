"""The chats of the page and their messages.

A change is stored before the pages get it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from chatlanes_sandbox.page.storage import PageStorage
from chatlanes_sandbox.simulator.stream import SUPERGROUPS

#: The last messages of each chat that a page gets.
SHOWN_PER_CHAT = 200
#: The first id of the page's people; ids of streamed chats begin at a million.
FIRST_USER_ID = 101

User = dict[str, Any]


@dataclass
class Chat:
    """`users` are ids. A private chat has the id of its user."""

    id: int
    type: str
    title: str
    users: list[int]
    last_message_id: int = 0
    #: Chats are shown in the order in which they were made.
    number: int = 0


@dataclass
class ChatMessage:
    """One message. `raw` is the Message object that the bot gets."""

    chat_id: int
    message_id: int
    user: User
    raw: dict[str, Any]
    #: A person's message: its update, and those of its edits.
    update_ids: list[int] = field(default_factory=list)
    #: A message of the bot: the update that it answers.
    answers: int | None = None
    edited: bool = False
    deleted: bool = False
    reactions: list[str] = field(default_factory=list)
    #: Of its buttons: {user_id, data, update_id}.
    presses: list[dict[str, Any]] = field(default_factory=list)
    keyboard: list[list[str]] | None = None

    @property
    def update_id(self) -> int | None:
        return self.update_ids[-1] if self.update_ids else self.answers


class ChatHistory:
    """`changed` is called with every chat and message that is new or has changed."""

    def __init__(self, storage: PageStorage, changed: Callable[[Chat | ChatMessage], None]) -> None:
        self._storage = storage
        self._changed = changed
        self.users: dict[int, User] = {user["id"]: user for user in storage.noted("users", [])}
        stored = sorted((Chat(**chat) for chat in storage.chats()), key=lambda chat: chat.number)
        self.chats: dict[int, Chat] = {chat.id: chat for chat in stored}
        self._messages: dict[int, dict[int, ChatMessage]] = {chat_id: {} for chat_id in self.chats}
        #: Update id -> its message.
        self._of_update: dict[int, ChatMessage] = {}
        for said in (ChatMessage(**said) for said in storage.messages()):
            self._remember(said)

    # ── chats ──

    def user(self, name: str) -> User:
        """The person with this name, who is created if needed."""
        found = next((user for user in self.users.values() if user["first_name"] == name), None)
        if found:
            return found
        user_id = max([FIRST_USER_ID - 1, *self.users]) + 1
        username = "".join(letter for letter in name.lower() if letter.isascii() and letter.isalnum())
        made = {"id": user_id, "first_name": name, "username": username or f"user{user_id}"}
        self.users[user_id] = made
        self._storage.note("users", list(self.users.values()))
        return made

    def private_chat(self, name: str) -> Chat:
        """The person's chat with the bot, created if needed."""
        user = self.user(name)
        return self.chats.get(user["id"]) or self._add(Chat(user["id"], "private", name, [user["id"]]))

    def group(self, title: str, names: list[str]) -> Chat:
        number = sum(chat.type != "private" for chat in self.chats.values()) + 1
        members = [self.user(name)["id"] for name in names]
        return self._add(Chat(SUPERGROUPS - number, "supergroup", title, members))

    def _add(self, chat: Chat) -> Chat:
        chat.number = max((known.number for known in self.chats.values()), default=0) + 1
        self.chats[chat.id] = chat
        self._messages[chat.id] = {}
        self._keep(chat)
        self._changed(chat)
        return chat

    def _keep(self, chat: Chat) -> None:
        self._storage.put_chat(chat.id, asdict(chat))

    # ── messages ──

    def new_message_id(self, chat: Chat) -> int:
        chat.last_message_id += 1
        self._keep(chat)
        return chat.last_message_id

    def message(self, chat_id: int, message_id: int) -> ChatMessage | None:
        """None if it does not exist, or was deleted."""
        said = self._messages.get(chat_id, {}).get(message_id)
        return None if said is None or said.deleted else said

    def put(self, said: ChatMessage) -> ChatMessage:
        self._remember(said)
        self._storage.put_message(said.chat_id, said.message_id, asdict(said))
        self._changed(said)
        return said

    def _remember(self, said: ChatMessage) -> None:
        self._messages.setdefault(said.chat_id, {})[said.message_id] = said
        for update_id in [*said.update_ids, *(press["update_id"] for press in said.presses)]:
            self._of_update[update_id] = said

    def of_update(self, update_id: int) -> ChatMessage | None:
        """The message that the update is about, or whose button was pressed."""
        return self._of_update.get(update_id)

    def last(self) -> list[ChatMessage]:
        """The messages of a snapshot."""
        return [said for messages in self._messages.values() for said in list(messages.values())[-SHOWN_PER_CHAT:]]

    def clear(self, chat_id: int) -> None:
        self._of_update = {known: said for known, said in self._of_update.items() if said.chat_id != chat_id}
        self._messages[chat_id] = {}
        self._storage.clear(chat_id)
