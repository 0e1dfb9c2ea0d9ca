"""The bot's calls that change messages in a chat of the page.

Promises Telegram's refusals: of a message that is not there, of one that is not the bot's, of a change that is none.
"""

from __future__ import annotations

import time
from typing import Any

from sandbox.page.book import Chat
from sandbox.page.content import content_of
from sandbox.page.markup import marked
from sandbox.page.scene import Scene, decoded, ids_in, without
from sandbox.page.sending import HEAD, medium
from sandbox.simulator.chats import Params, RefusedError, listed

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
    changed = without(_changed(scene, said.raw, method, params), "reply_markup")
    markup = decoded(params.get("reply_markup"))
    if markup.get("inline_keyboard"):
        changed["reply_markup"] = {"inline_keyboard": markup["inline_keyboard"]}
    if changed == said.raw:
        raise RefusedError(NOT_MODIFIED)
    said.edited = said.edited or method != "editMessageReplyMarkup"
    said.raw = {**changed, "edit_date": int(time.time())}
    return scene.book.put(said).raw


def _changed(scene: Scene, raw: dict[str, Any], method: str, params: Params) -> dict[str, Any]:
    match method:
        case "editMessageText" if "text" not in raw:
            raise RefusedError("Bad Request: there is no text in the message to edit")
        case "editMessageText":
            return {**without(raw, "entities"), **content_of("sendMessage", params, scene.files)}
        case "editMessageCaption":
            return {**without(raw, "caption", "caption_entities"), **marked(params, "caption")}
        case "editMessageMedia":
            kept = {name: value for name, value in raw.items() if name in HEAD}
            return {**kept, **medium(scene, decoded(params.get("media")), params)}
    return raw


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
