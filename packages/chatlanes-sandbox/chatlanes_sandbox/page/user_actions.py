"""Actions of users in the page, as Telegram's updates.

Updates are those of Telegram: entities of commands, the message under a pressed button, the date of an edit. What
Telegram does not allow raises ActionError.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from itertools import cycle
from typing import Any

from chatlanes_sandbox.page.history import Chat, ChatHistory, ChatMessage, User
from chatlanes_sandbox.simulator.calls.chats import (
    LONGEST_TEXT,
    callback_query,
    check_receiver,
    ephemeral,
    id_of,
)
from chatlanes_sandbox.simulator.calls.content import LONGEST_CAPTION, without
from chatlanes_sandbox.simulator.calls.files import photo_size
from chatlanes_sandbox.simulator.calls.markup import marked

#: Ids of chats that the page does not show, between its own and the streamed ones.
OTHER_CHATS = range(900_001, 900_011)
MOST_FLOODED = 5_000


class ActionError(ValueError):
    """A sentence for the user who tried."""


def said_text(
    history: ChatHistory,
    chat: Chat,
    user_id: int,
    text: str,
    reply_to: int | None = None,
    *,
    secrets: Collection[str] = (),
) -> ChatMessage:
    """A message written by a user. In a group, a command of `secrets` is an ephemeral message."""
    if not text.strip():
        raise ActionError("an empty message cannot be sent")
    if len(text) > LONGEST_TEXT:
        raise ActionError(f"a message has at most {LONGEST_TEXT} characters")
    command = text.removeprefix("/").split()[0].partition("@")[0] if text.startswith("/") else ""
    is_ephemeral = chat.type != "private" and command in secrets
    return said_content(history, chat, user_id, marked({"text": text}, "text"), reply_to, is_ephemeral=is_ephemeral)


def said_photos(
    history: ChatHistory, chat: Chat, user_id: int, photos: Sequence[tuple[str, bytes]], caption: str
) -> list[ChatMessage]:
    """One message for each photo (file id, content). Several are an album, whose caption is that of the first."""
    if len(caption) > LONGEST_CAPTION:
        raise ActionError(f"a caption has at most {LONGEST_CAPTION} characters")
    album = {"media_group_id": str(time.time_ns())} if len(photos) > 1 else {}
    captions = [marked({"caption": caption}, "caption"), *({} for _ in photos[1:])]
    return [
        said_content(history, chat, user_id, {**album, "photo": [photo_size(file_id, content)], **own})
        for (file_id, content), own in zip(photos, captions, strict=True)
    ]


def edited(history: ChatHistory, chat: Chat, user_id: int, message_id: int, text: str) -> ChatMessage:
    """The same message with another text, or caption."""
    said = history.message(chat.id, message_id)
    if said is None or said.user["id"] != user_id:
        raise ActionError("only one's own messages can be edited, and only those that are still there")
    name = "text" if "text" in said.raw else "caption"
    if name == "text" and not text.strip():
        raise ActionError("a message cannot be edited to nothing")
    raw = without(said.raw, "text", "entities", "caption", "caption_entities")
    said.raw = {**raw, **marked({name: text}, name), "edit_date": int(time.time())}
    said.edited = True
    return said


def pressed(history: ChatHistory, chat: Chat, user_id: int, said: ChatMessage | None, data: str) -> dict[str, Any]:
    """A callback_query."""
    if user_id not in chat.users:
        raise ActionError("this person is not in this chat")
    rows = said.raw.get("reply_markup", {}).get("inline_keyboard", []) if said else []
    if said is None or not any(button.get("callback_data") == data for row in rows for button in row):
        raise ActionError("the button does not exist any more")
    check_receiver(said.raw, user_id)
    return callback_query(person(history, user_id), said.raw, data)


def flood_of(count: int, history: ChatHistory) -> Iterator[tuple[Chat | None, User, str]]:
    """(chat, user, text) of each message, over the chats in turn. None: a private chat that the page does not show."""
    if not 1 <= count <= MOST_FLOODED:
        raise ActionError(f"a flood has from 1 to {MOST_FLOODED} messages")
    strangers: list[tuple[Chat | None, User]] = [
        (None, {"id": chat_id, "first_name": f"Other {chat_id - OTHER_CHATS.start + 1}"}) for chat_id in OTHER_CHATS
    ]
    own: list[tuple[Chat | None, User]] = [
        (chat, history.users[chat.users[0]]) for chat in history.chats.values() if chat.users
    ]
    places = cycle([*own, *strangers])
    for number in range(1, count + 1):
        chat, user = next(places)
        yield chat, user, f"{number} of {count}"


def message_of(user: User, number: int, text: str) -> dict[str, Any]:
    """A message in a private chat."""
    sender = {**user, "is_bot": False}
    chat = {**user, "type": "private"}
    return {"message_id": number, "from": sender, "chat": chat, "date": int(time.time()), "text": text}


def person(history: ChatHistory, user_id: int) -> dict[str, Any]:
    user = history.users[user_id]
    return {"id": user_id, "is_bot": False, **user, "language_code": "en"}


def chat_of(chat: Chat, history: ChatHistory) -> dict[str, Any]:
    """The Chat object in updates."""
    if chat.type == "private":
        return {"type": "private", **history.users[chat.id]}
    return {"id": chat.id, "type": chat.type, "title": chat.title}


def said_content(
    history: ChatHistory,
    chat: Chat,
    user_id: int,
    shown: dict[str, Any],
    reply_to: int | None = None,
    *,
    is_ephemeral: bool = False,
) -> ChatMessage:
    """A message of a user with the content `shown`."""
    if user_id not in chat.users:
        raise ActionError("this person is not in this chat")
    raw: dict[str, Any] = {
        "message_id": history.new_message_id(chat),
        "from": person(history, user_id),
        "chat": chat_of(chat, history),
        "date": int(time.time()),
    }
    if reply_to is not None:
        answered = history.message(chat.id, reply_to)
        if answered is None:
            raise ActionError("the message to reply to is not there any more")
        raw["reply_to_message"] = without(answered.raw, "reply_to_message")  # it has none itself
    user = {"id": user_id, "first_name": history.users[user_id]["first_name"], "is_bot": False}
    raw |= shown
    return ChatMessage(chat.id, id_of(raw), user, ephemeral(raw) if is_ephemeral else raw)
