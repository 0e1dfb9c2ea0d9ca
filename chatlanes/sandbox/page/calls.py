"""What the bot's calls do in the chats of the page.

Promises that what a call did is seen in its chat, and Telegram's refusal where a message is not there or is not the
bot's. Calls in other chats do as much as without a page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlanes.sandbox.page.book import Chat
from chatlanes.sandbox.page.changing import delete, delete_all, edit, react
from chatlanes.sandbox.page.people import chat_of, person
from chatlanes.sandbox.page.scene import Scene
from chatlanes.sandbox.page.sending import copy, copy_all, forward, forward_all, send, send_album
from chatlanes.sandbox.simulator.chats import FULL_CHAT, Chats, refuse_what_telegram_refuses
from chatlanes.sandbox.simulator.methods import edits_message, gives_message
from chatlanes.sandbox.simulator.params import Params, RefusedError, is_true, whole

#: Of a bot's User object, what messages show.
USER = ("id", "is_bot", "first_name", "username")


class PageChats(Chats):
    """The chats of one bot, some of them the page's."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.bot, scene.files)
        self._scene = scene

    def call(self, method: str, params: Params) -> Any:
        if method == "answerCallbackQuery":
            _show_answer(self._scene, params)
        chat = self._scene.book.chats.get(whole(params, "chat_id", 0))
        if chat is None:
            return super().call(method, params)
        refuse_what_telegram_refuses(method, params)
        if method in _ACTS:
            return _ACTS[method](self._scene, chat, params)
        if gives_message(method):
            return send(self._scene, chat, method, params)
        if edits_message(method):
            return edit(self._scene, chat, method, params)
        return super().call(method, params)


def _act(scene: Scene, chat: Chat, params: Params) -> bool:
    scene.tell("action", {"chat_id": chat.id, "action": str(params.get("action", ""))})
    return True


def _show_answer(scene: Scene, params: Params) -> None:
    refuse_what_telegram_refuses("answerCallbackQuery", params)
    query = scene.queries.get(str(params["callback_query_id"]))
    if query:
        said = {"text": str(params.get("text") or ""), "alert": is_true(params.get("show_alert"))}
        scene.tell("notice", {"chat_id": query[0], "user_id": query[1], **said})


def _about(scene: Scene, chat: Chat, params: Params) -> dict[str, Any]:
    return {**chat_of(chat, scene.book), **FULL_CHAT}


def _member(scene: Scene, chat: Chat, params: Params) -> dict[str, Any]:
    user_id = whole(params, "user_id", 0)
    if user_id == scene.bot["id"]:
        return {"status": "member", "user": scene.bot}
    if user_id not in chat.users:
        raise RefusedError("Bad Request: user not found")
    return {"status": "member", "user": person(scene.book, user_id)}


_ACTS: dict[str, Callable[[Scene, Chat, Params], Any]] = {
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
    "getChatMemberCount": lambda scene, chat, params: len(chat.users) + 1,
}
