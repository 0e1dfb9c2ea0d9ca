"""The bot's calls in the chats of the page.

Their effects are shown, and Telegram's refusals are returned for messages that do not exist or are not the bot's, and
for edits that change nothing. Calls in other chats work as without a page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlanes_sandbox.page.history import Chat, ChatHistory, ChatMessage
from chatlanes_sandbox.page.user_actions import chat_of, person
from chatlanes_sandbox.page.views import entities_of, kind_of, text_of
from chatlanes_sandbox.simulator.calls.chats import Chats, id_of, is_named, refuse_what_telegram_refuses, reply_asked
from chatlanes_sandbox.simulator.calls.drafts import Drafts, Place
from chatlanes_sandbox.simulator.calls.files import FileStore
from chatlanes_sandbox.simulator.calls.params import Params, RefusedError, decoded, is_true, listed, whole


class PageChats(Chats):
    """The chats of one bot, some of them the page's. `publish` sends events that are not messages."""

    def __init__(
        self,
        bot: dict[str, Any],
        files: FileStore,
        history: ChatHistory,
        publish: Callable[[str, dict[str, Any]], None],
    ) -> None:
        super().__init__(bot, files, Drafts(self._drafted))
        self._history = history
        self._publish = publish
        #: The update of the call; None: unknown.
        self.answers: int | None = None
        #: Presses of buttons: callback_query_id -> (chat, user).
        self.queries: dict[str, tuple[int, int]] = {}

    def call(self, method: str, params: Params) -> Any:
        act = _ACTS.get(method)
        chat = self._shown(params)
        if act and (chat or method == "answerCallbackQuery"):
            refuse_what_telegram_refuses(method, params)
            return act(self, chat, params)
        return super().call(method, params)

    def _drafted(self, place: Place) -> None:
        self._publish("drafts", {"chat_id": place[0], "drafts": drafts_shown(self.drafts, place[0])})

    def _shown(self, params: Params, name: str = "chat_id") -> Chat | None:
        """The chat that a call names; None if it is not the page's."""
        return self._history.chats.get(whole(params, name, 0))

    def _said(self, params: Params, name: str = "chat_id") -> ChatMessage | None:
        """The message that a call names, of a chat of the page."""
        said = self._history.message(whole(params, name, 0), whole(params, "message_id", 0))
        return said if said and is_named(said.raw, params) else None

    # ── messages of the page instead of those that Chats keeps ──

    def _found(self, params: Params, chat: str = "chat_id", purpose: str = "") -> dict[str, Any] | None:
        if self._shown(params, chat) is None:
            return super()._found(params, chat, purpose)
        said = self._said(params, chat)
        if said is None and purpose:
            raise RefusedError(f"Bad Request: message to {purpose} not found")
        return None if said is None else said.raw

    def _next_id(self, params: Params) -> int:
        chat = self._shown(params)
        return self._history.new_message_id(chat) if chat else super()._next_id(params)

    def _chat_of(self, params: Params) -> dict[str, Any]:
        chat = self._shown(params)
        return chat_of(chat, self._history) if chat else super()._chat_of(params)

    def _person(self, params: Params, user_id: int) -> dict[str, Any]:
        chat = self._shown(params)
        if chat is None:
            return super()._person(params, user_id)
        if user_id not in chat.users:
            raise RefusedError("Bad Request: user not found")
        return person(self._history, user_id)

    def _keep(self, message: dict[str, Any], params: Params, edited_by: str = "") -> dict[str, Any]:
        chat, number = self._shown(params), id_of(message)
        if chat is None:
            return super()._keep(message, params, edited_by)
        said = self._history.message(chat.id, number)
        if said is None:
            me = {name: self._bot[name] for name in ("id", "first_name", "is_bot")}
            keyboard = _keyboard(decoded(params.get("reply_markup")))
            said = ChatMessage(chat.id, number, me, message, answers=self.answers, keyboard=keyboard)
        said.raw = message
        said.edited = said.edited or edited_by not in ("", "editMessageReplyMarkup")
        return self._history.put(said).raw

    # ── what Telegram refuses, because everything about these chats is known ──

    def _reply(self, params: Params) -> dict[str, Any]:
        asked = reply_asked(params)
        if self._shown(params) is None or not whole(asked, "message_id", 0):
            return super()._reply(params)
        if self._found({**params, "message_id": asked["message_id"]}) is None:
            if is_true(asked.get("allow_sending_without_reply") or params.get("allow_sending_without_reply")):
                return {}
            raise RefusedError("Bad Request: message to be replied not found")
        return super()._reply(params)

    def _again(self, params: Params, message_id: int, *, is_copy: bool = False) -> dict[str, Any]:
        if self._shown(params) and self._found({**params, "message_id": message_id}, "from_chat_id") is None:
            raise RefusedError(f"Bad Request: message to {'copy' if is_copy else 'forward'} not found")
        return super()._again(params, message_id, is_copy=is_copy)

    def _edit(self, method: str, params: Params) -> dict[str, Any]:
        said = self._said(params)
        if said and not said.user["is_bot"]:
            raise RefusedError("Bad Request: message can't be edited")
        if said and method == "editMessageText" and not {"text", "rich_message"} & said.raw.keys():
            raise RefusedError("Bad Request: there is no text in the message to edit")
        return super()._edit(method, params)

    def _delete(self, params: Params) -> bool:
        said = self._said(params)
        if said is None:
            return super()._delete(params)
        said.deleted = True
        self._history.put(said)
        return True

    # ── the rest ──

    def react(self, chat: Chat, params: Params) -> bool:
        said = self._said(params)
        if said is None:
            raise RefusedError("Bad Request: message to react not found")
        said.reactions = [each.get("emoji", "★") for each in listed(params, "reaction") if isinstance(each, dict)]
        self._history.put(said)
        return True

    def act(self, chat: Chat, params: Params) -> bool:
        self._publish("action", {"chat_id": chat.id, "action": str(params.get("action", ""))})
        return True

    def show_answer(self, chat: Chat | None, params: Params) -> bool:
        query = self.queries.get(str(params["callback_query_id"]))
        if query:
            said = {"text": str(params.get("text") or ""), "alert": is_true(params.get("show_alert"))}
            self._publish("notice", {"chat_id": query[0], "user_id": query[1], **said})
        return True

    def member(self, chat: Chat, params: Params) -> dict[str, Any]:
        user_id = whole(params, "user_id", 0)
        return {"status": "member", "user": self._bot if user_id == self._bot["id"] else self._person(params, user_id)}

    def count(self, chat: Chat, params: Params) -> int:
        return len(chat.users) + 1


_ACTS: dict[str, Callable[[PageChats, Any, Params], Any]] = {
    "setMessageReaction": PageChats.react,
    "sendChatAction": PageChats.act,
    "answerCallbackQuery": PageChats.show_answer,
    "getChatMember": PageChats.member,
    "getChatMemberCount": PageChats.count,
}


def drafts_shown(drafts: Drafts, chat_id: int | None = None) -> list[dict[str, Any]]:
    """The drafts of a chat, or of all, as the page gets them."""
    return [
        {**draft, "text": text_of(draft, kind), "entities": entities_of(draft, kind)}
        for draft in drafts.shown()
        if chat_id in (None, draft["chat_id"])
        for kind in [kind_of(draft)]
    ]


def _keyboard(markup: dict[str, Any]) -> list[list[str]] | None:
    """The keyboard below the input field; [] removes it."""
    if markup.get("remove_keyboard"):
        return []
    rows = markup.get("keyboard")
    return rows and [[each.get("text", "") if isinstance(each, dict) else str(each) for each in row] for row in rows]
