"""The bot's calls that send messages to a chat of the page.

Refused as by Telegram: replies to, copies and forwards of messages that do not exist.
"""

from __future__ import annotations

import time
from typing import Any

from chatlanes.sandbox.page.chats.call_context import CallContext, ids_in, without
from chatlanes.sandbox.page.chats.history import Chat, ChatMessage
from chatlanes.sandbox.page.chats.user_actions import chat_of, replied_to
from chatlanes.sandbox.simulator.calls.content import HEAD, content_of, marked, medium, options_of
from chatlanes.sandbox.simulator.calls.params import Params, RefusedError, decoded, is_true, listed, whole


def send(context: CallContext, chat: Chat, method: str, params: Params) -> dict[str, Any]:
    """The sent message, for every call that returns one."""
    return _say(context, chat, content_of(method, params, context.files), params)


def send_album(context: CallContext, chat: Chat, params: Params) -> list[dict[str, Any]]:
    media = [item for item in listed(params, "media") if isinstance(item, dict)]
    if not media:
        raise RefusedError("Bad Request: there is no media in the request")
    shown = [medium(item, params, context.files) for item in media]
    group = {"media_group_id": str(time.time_ns())}
    return [_say(context, chat, {**content, **group}, params) for content in shown]


def copy(context: CallContext, chat: Chat, params: Params) -> dict[str, int]:
    return {"message_id": _again(context, chat, params, whole(params, "message_id", 0))["message_id"]}


def copy_all(context: CallContext, chat: Chat, params: Params) -> list[dict[str, int]]:
    return [{"message_id": _again(context, chat, params, each)["message_id"]} for each in ids_in(params)]


def forward(context: CallContext, chat: Chat, params: Params) -> dict[str, Any]:
    return _again(context, chat, params, whole(params, "message_id", 0), is_forward=True)


def forward_all(context: CallContext, chat: Chat, params: Params) -> list[dict[str, int]]:
    made = [_again(context, chat, params, each, is_forward=True) for each in ids_in(params)]
    return [{"message_id": raw["message_id"]} for raw in made]


def _again(
    context: CallContext, chat: Chat, params: Params, message_id: int, *, is_forward: bool = False
) -> dict[str, Any]:
    source = context.history.message(whole(params, "from_chat_id", 0), message_id)
    if source is None:
        raise RefusedError(f"Bad Request: message to {'forward' if is_forward else 'copy'} not found")
    content = without(source.raw, *HEAD)
    if is_forward:
        content["forward_origin"] = {"type": "user", "sender_user": source.raw["from"], "date": source.raw["date"]}
    elif "caption" in params:
        content = {**without(content, "caption", "caption_entities"), **marked(params, "caption")}
    return _say(context, chat, content, params)


def _say(context: CallContext, chat: Chat, content: dict[str, Any], params: Params) -> dict[str, Any]:
    markup = decoded(params.get("reply_markup"))
    replied = _replied(context, chat, params)
    raw: dict[str, Any] = {
        "message_id": context.history.new_message_id(chat),
        "from": context.bot,
        "chat": chat_of(chat, context.history),
        "date": int(time.time()),
        **({"reply_to_message": replied_to(replied)} if replied else {}),
        **content,
        **options_of(params),
    }
    me = {name: context.bot[name] for name in ("id", "first_name", "is_bot")}
    said = ChatMessage(chat.id, raw["message_id"], me, raw, answers=context.answers, keyboard=_keyboard(markup))
    return context.history.put(said).raw


def _replied(context: CallContext, chat: Chat, params: Params) -> ChatMessage | None:
    """Raises RefusedError if it does not exist, unless that is allowed."""
    asked = decoded(params.get("reply_parameters")) or {"message_id": params.get("reply_to_message_id")}
    found = context.message(chat.id, asked)
    is_allowed = is_true(asked.get("allow_sending_without_reply") or params.get("allow_sending_without_reply"))
    if whole(asked, "message_id", 0) and found is None and not is_allowed:
        raise RefusedError("Bad Request: message to be replied not found")
    return found


def _keyboard(markup: dict[str, Any]) -> list[list[str]] | None:
    """The keyboard below the input field; [] removes it."""
    if markup.get("remove_keyboard"):
        return []
    rows = markup.get("keyboard")
    return rows and [[each.get("text", "") if isinstance(each, dict) else str(each) for each in row] for row in rows]
