"""What people do in the page, as the updates that Telegram makes of it.

Promises updates as a bot gets them from Telegram: entities of commands, the message under a pressed button, the edit's
date. Raises NotDoneError for what one cannot do in Telegram.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from chatlanes.sandbox.page.book import Book, Chat, Said
from chatlanes.sandbox.page.scene import without
from chatlanes.sandbox.simulator.content.markup import marked
from chatlanes.sandbox.simulator.content.pictures import photo_size

LONGEST_TEXT = 4096
LONGEST_CAPTION = 1024


class NotDoneError(ValueError):
    """A sentence for whoever tried."""


def said_text(book: Book, chat: Chat, user_id: int, text: str, reply_to: int | None = None) -> Said:
    """A message that somebody wrote."""
    if not text.strip():
        raise NotDoneError("an empty message cannot be sent")
    if len(text) > LONGEST_TEXT:
        raise NotDoneError(f"a message has at most {LONGEST_TEXT} characters")
    return _said(book, chat, user_id, marked({"text": text}, "text"), reply_to)


def said_photo(book: Book, chat: Chat, user_id: int, file_id: str, content: bytes, caption: str) -> Said:
    if len(caption) > LONGEST_CAPTION:
        raise NotDoneError(f"a caption has at most {LONGEST_CAPTION} characters")
    return _said(
        book, chat, user_id, {"photo": [photo_size(file_id, content)], **marked({"caption": caption}, "caption")}
    )


def edited(book: Book, chat: Chat, user_id: int, message_id: int, text: str) -> Said:
    """The same message with another text, or caption."""
    said = book.message(chat.id, message_id)
    if said is None or said.user["id"] != user_id:
        raise NotDoneError("only one's own messages can be edited, and only those that are still there")
    name = "text" if "text" in said.raw else "caption"
    if name == "text" and not text.strip():
        raise NotDoneError("a message cannot be edited to nothing")
    raw = without(said.raw, "text", "entities", "caption", "caption_entities")
    said.raw = {**raw, **marked({name: text}, name), "edit_date": int(time.time())}
    said.edited = True
    return said


def pressed(book: Book, chat: Chat, user_id: int, said: Said | None, data: str) -> dict[str, Any]:
    """A callback_query."""
    if user_id not in chat.users:
        raise NotDoneError("this person is not in this chat")
    rows = said.raw.get("reply_markup", {}).get("inline_keyboard", []) if said else []
    if said is None or not any(button.get("callback_data") == data for row in rows for button in row):
        raise NotDoneError("there is no such button any more")
    return {
        "id": str(secrets.randbits(62)),
        "from": person(book, user_id),
        "message": said.raw,
        "chat_instance": str(abs(chat.id) * 7919),
        "data": data,
    }


def person(book: Book, user_id: int) -> dict[str, Any]:
    user = book.users[user_id]
    return {"id": user_id, "is_bot": False, **user, "language_code": "en"}


def chat_of(chat: Chat, book: Book) -> dict[str, Any]:
    """As updates have it."""
    if chat.type == "private":
        return {"type": "private", **book.users[chat.id]}
    return {"id": chat.id, "type": chat.type, "title": chat.title}


def replied_to(said: Said) -> dict[str, Any]:
    """As it stands in its answer: without what it answers itself."""
    return {name: value for name, value in said.raw.items() if name != "reply_to_message"}


def _said(book: Book, chat: Chat, user_id: int, shown: dict[str, Any], reply_to: int | None = None) -> Said:
    if user_id not in chat.users:
        raise NotDoneError("this person is not in this chat")
    raw: dict[str, Any] = {
        "message_id": book.new_message_id(chat),
        "from": person(book, user_id),
        "chat": chat_of(chat, book),
        "date": int(time.time()),
    }
    if reply_to is not None:
        answered = book.message(chat.id, reply_to)
        if answered is None:
            raise NotDoneError("the message to reply to is not there any more")
        raw["reply_to_message"] = replied_to(answered)
    user = {"id": user_id, "first_name": book.users[user_id]["first_name"], "is_bot": False}
    return Said(chat.id, raw["message_id"], user, {**raw, **shown})
