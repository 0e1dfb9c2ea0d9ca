"""The bot's calls that put messages into a chat of the page.

Promises that what was sent is seen, and the refusals that depend on what is there: nothing to reply to, to copy, to
forward.
"""

from __future__ import annotations

import time
from typing import Any

from chatlanes.sandbox.page.book import Chat, Said
from chatlanes.sandbox.page.people import chat_of, replied_to
from chatlanes.sandbox.page.scene import Scene, ids_in, without
from chatlanes.sandbox.simulator.content import HEAD, content_of, manner_of, marked, medium
from chatlanes.sandbox.simulator.params import Params, RefusedError, decoded, is_true, listed, whole


def send(scene: Scene, chat: Chat, method: str, params: Params) -> dict[str, Any]:
    """The message, as for every call that gives one."""
    return _say(scene, chat, content_of(method, params, scene.files), params)


def send_album(scene: Scene, chat: Chat, params: Params) -> list[dict[str, Any]]:
    media = [item for item in listed(params, "media") if isinstance(item, dict)]
    if not media:
        raise RefusedError("Bad Request: there is no media in the request")
    shown = [medium(item, params, scene.files) for item in media]
    group = {"media_group_id": str(time.time_ns())}
    return [_say(scene, chat, {**content, **group}, params) for content in shown]


def copy(scene: Scene, chat: Chat, params: Params) -> dict[str, int]:
    return {"message_id": _again(scene, chat, params, whole(params, "message_id", 0))["message_id"]}


def copy_all(scene: Scene, chat: Chat, params: Params) -> list[dict[str, int]]:
    return [{"message_id": _again(scene, chat, params, each)["message_id"]} for each in ids_in(params)]


def forward(scene: Scene, chat: Chat, params: Params) -> dict[str, Any]:
    return _again(scene, chat, params, whole(params, "message_id", 0), is_forward=True)


def forward_all(scene: Scene, chat: Chat, params: Params) -> list[dict[str, int]]:
    made = [_again(scene, chat, params, each, is_forward=True) for each in ids_in(params)]
    return [{"message_id": raw["message_id"]} for raw in made]


def _again(scene: Scene, chat: Chat, params: Params, message_id: int, *, is_forward: bool = False) -> dict[str, Any]:
    source = scene.book.message(whole(params, "from_chat_id", 0), message_id)
    if source is None:
        raise RefusedError(f"Bad Request: message to {'forward' if is_forward else 'copy'} not found")
    content = without(source.raw, *HEAD)
    if is_forward:
        content["forward_origin"] = {"type": "user", "sender_user": source.raw["from"], "date": source.raw["date"]}
    elif "caption" in params:
        content = {**without(content, "caption", "caption_entities"), **marked(params, "caption")}
    return _say(scene, chat, content, params)


def _say(scene: Scene, chat: Chat, content: dict[str, Any], params: Params) -> dict[str, Any]:
    markup = decoded(params.get("reply_markup"))
    replied = _replied(scene, chat, params)
    raw: dict[str, Any] = {
        "message_id": scene.book.new_message_id(chat),
        "from": scene.bot,
        "chat": chat_of(chat, scene.book),
        "date": int(time.time()),
        **({"reply_to_message": replied_to(replied)} if replied else {}),
        **content,
        **manner_of(params),
    }
    me = {name: scene.bot[name] for name in ("id", "first_name", "is_bot")}
    said = Said(chat.id, raw["message_id"], me, raw, answers=scene.answers, keyboard=_keyboard(markup))
    return scene.book.put(said).raw


def _replied(scene: Scene, chat: Chat, params: Params) -> Said | None:
    """Raises RefusedError when it is gone, unless that is allowed."""
    asked = decoded(params.get("reply_parameters")) or {"message_id": params.get("reply_to_message_id")}
    found = scene.message(chat.id, asked)
    is_allowed = is_true(asked.get("allow_sending_without_reply") or params.get("allow_sending_without_reply"))
    if whole(asked, "message_id", 0) and found is None and not is_allowed:
        raise RefusedError("Bad Request: message to be replied not found")
    return found


def _keyboard(markup: dict[str, Any]) -> list[list[str]] | None:
    """Under the input field; [] takes it away."""
    if markup.get("remove_keyboard"):
        return []
    rows = markup.get("keyboard")
    return rows and [[each.get("text", "") if isinstance(each, dict) else str(each) for each in row] for row in rows]
