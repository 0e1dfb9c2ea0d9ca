"""The bot's calls in the chats of the page.

Their effects are shown, and Telegram's refusals are returned for messages that do not exist or are not the bot's. Calls
in other chats work as without a page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlanes.sandbox.page.chats.call_context import CallContext
from chatlanes.sandbox.page.chats.edit_calls import delete, delete_all, edit, react
from chatlanes.sandbox.page.chats.history import Chat
from chatlanes.sandbox.page.chats.send_calls import copy, copy_all, forward, forward_all, send, send_album
from chatlanes.sandbox.page.chats.user_actions import chat_of, person
from chatlanes.sandbox.simulator.calls.chats import FULL_CHAT, Chats, refuse_what_telegram_refuses
from chatlanes.sandbox.simulator.calls.methods import edits_message, gives_message
from chatlanes.sandbox.simulator.calls.params import Params, RefusedError, is_true, whole

#: The fields of a bot's User object in messages.
USER = ("id", "is_bot", "first_name", "username")


class PageChats(Chats):
    """The chats of one bot, some of them the page's."""

    def __init__(self, context: CallContext) -> None:
        super().__init__(context.bot, context.files)
        self._context = context

    def call(self, method: str, params: Params) -> Any:
        if method == "answerCallbackQuery":
            _show_answer(self._context, params)
        chat = self._context.history.chats.get(whole(params, "chat_id", 0))
        if chat is None:
            return super().call(method, params)
        refuse_what_telegram_refuses(method, params)
        if method in _ACTS:
            return _ACTS[method](self._context, chat, params)
        if gives_message(method):
            return send(self._context, chat, method, params)
        if edits_message(method):
            return edit(self._context, chat, method, params)
        return super().call(method, params)


def _act(context: CallContext, chat: Chat, params: Params) -> bool:
    context.publish("action", {"chat_id": chat.id, "action": str(params.get("action", ""))})
    return True


def _show_answer(context: CallContext, params: Params) -> None:
    refuse_what_telegram_refuses("answerCallbackQuery", params)
    query = context.queries.get(str(params["callback_query_id"]))
    if query:
        said = {"text": str(params.get("text") or ""), "alert": is_true(params.get("show_alert"))}
        context.publish("notice", {"chat_id": query[0], "user_id": query[1], **said})


def _about(context: CallContext, chat: Chat, params: Params) -> dict[str, Any]:
    return {**chat_of(chat, context.history), **FULL_CHAT}


def _member(context: CallContext, chat: Chat, params: Params) -> dict[str, Any]:
    user_id = whole(params, "user_id", 0)
    if user_id == context.bot["id"]:
        return {"status": "member", "user": context.bot}
    if user_id not in chat.users:
        raise RefusedError("Bad Request: user not found")
    return {"status": "member", "user": person(context.history, user_id)}


_ACTS: dict[str, Callable[[CallContext, Chat, Params], Any]] = {
    "sendMediaGroup": send_album,
    "copyMessage": copy,
    "copyMessages": copy_all,
    "forwardMessage": forward,
    "forwardMessages": forward_all,
    "deleteMessage": delete,
    "deleteMessages": delete_all,
    "setMessageReaction": react,
    "sendChatAction": _act,
    "getChat": _about,
    "getChatMember": _member,
    "getChatMemberCount": lambda context, chat, params: len(chat.users) + 1,
}
