"""A flood: many messages at once, in the page's chats and in ten others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from chatlanes.sandbox.page.chats.history import Chat, ChatHistory, User
from chatlanes.sandbox.page.chats.user_actions import ActionError

#: Chats that the page does not show, between its own and the streamed ones.
OTHER_CHATS = range(900_001, 900_011)
MOST = 5_000


def flood_of(count: int, history: ChatHistory) -> Iterator[tuple[Chat | None, User, str]]:
    """Chat by chat in turn: where, who, what. Without a chat it is a private one of somebody else."""
    if not 1 <= count <= MOST:
        raise ActionError(f"a flood has from 1 to {MOST} messages")
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
    """In a chat of its own."""
    person = {**user, "is_bot": False}
    chat = {**user, "type": "private"}
    return {"message_id": number, "from": person, "chat": chat, "date": int(time.time()), "text": text}
