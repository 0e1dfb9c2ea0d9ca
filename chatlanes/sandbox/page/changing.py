"""The bot's calls that change messages in a chat of the page.

Promises Telegram's refusals: of a message that is not there, of one that is not the bot's, of a change that is none.
"""

from __future__ import annotations

import time
from typing import Any

from chatlanes.sandbox.page.book import Chat
from chatlanes.sandbox.page.scene import Scene, ids_in
from chatlanes.sandbox.simulator.content import changed
from chatlanes.sandbox.simulator.params import Params, RefusedError, listed

NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a "
    "current content and reply markup of the message"
)


def edit(scene: Scene, chat: Chat, method: str, params: Params) -> dict[str, Any]:
    said = scene.message(chat.id, params)
    if said is None:
        raise RefusedError("Bad Request: message to edit not found")
    if not said.user["is_bot"]:
        raise RefusedError("Bad Request: message can't be edited")
    if method == "editMessageText" and "text" not in said.raw:
        raise RefusedError("Bad Request: there is no text in the message to edit")
    edited = changed(said.raw, method, params, scene.files)
    if edited == said.raw:
        raise RefusedError(NOT_MODIFIED)
    said.edited = said.edited or method != "editMessageReplyMarkup"
    said.raw = {**edited, "edit_date": int(time.time())}
    return scene.book.put(said).raw


def delete(scene: Scene, chat: Chat, params: Params) -> bool:
    said = scene.message(chat.id, params)
    if said is None:
        raise RefusedError("Bad Request: message to delete not found")
    said.deleted = True
    scene.book.put(said)
    return True


def delete_all(scene: Scene, chat: Chat, params: Params) -> bool:
    """Those that are not there are passed over."""
    for message_id in ids_in(params):
        said = scene.book.message(chat.id, message_id)
        if said is not None:
            said.deleted = True
            scene.book.put(said)
    return True


def react(scene: Scene, chat: Chat, params: Params) -> bool:
    said = scene.message(chat.id, params)
    if said is None:
        raise RefusedError("Bad Request: message to react not found")
    said.reactions = [each.get("emoji", "★") for each in listed(params, "reaction") if isinstance(each, dict)]
    scene.book.put(said)
    return True
