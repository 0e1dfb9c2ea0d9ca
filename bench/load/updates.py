"""Generated updates, all of nearly the same length as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from bench.measure.scale import UPDATE_BYTES

Update = dict[str, Any]

#: The simulator of the bench writes the time of its answer here; the length stays the same.
UNSTAMPED = b'"answered_at":"0000000000.000000"'


def make_update(number: int, chat: int, *, numbered: bool = True) -> Update:
    """A private message. Without `numbered`, the simulator assigns the id."""
    person = {"id": chat, "is_bot": False, "first_name": f"User {chat}", "language_code": "en"}
    message: Update = {
        "message_id": number,
        "from": person,
        "chat": {"id": chat, "type": "private", "first_name": f"User {chat}"},
        "date": 1_700_000_000,
        "text": f"#{number} ",
    }
    update: Update = {"message": message, "answered_at": "0000000000.000000"}
    if numbered:
        update = {"update_id": number, **update}
    message["text"] += "x" * max(0, UPDATE_BYTES - len(orjson.dumps(update)))
    return update


def make_updates(count: int, chats: int, *, first: int = 1, numbered: bool = True) -> Iterator[Update]:
    """Updates of all chats in turn, so that any stretch of them covers as many chats as possible."""
    return (make_update(first + i, 1001 + i % chats, numbered=numbered) for i in range(count))


def stamp(body: bytes, now_s: float) -> bytes:
    """The update with the time of its answer."""
    return body.replace(UNSTAMPED, b'"answered_at":"%017.6f"' % now_s, 1)
