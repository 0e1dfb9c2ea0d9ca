"""What the bot's calls do in the chats of the page.

Promises that what a call did is seen in its chat, and Telegram's refusal where a message is not there or is not the
bot's. Calls in other chats do as much as without a page.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from sandbox.page.book import Book, Chat, Said
from sandbox.page.content import content_of, file_shown
from sandbox.page.markup import marked
from sandbox.page.people import chat_of, person, replied_to
from sandbox.simulator.chats import Chats, Params, RefusedError, listed, refuse_what_telegram_refuses
from sandbox.simulator.files import Files
from sandbox.simulator.methods import edits_message, gives_message
from sandbox.simulator.polls import whole

NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a "
    "current content and reply markup of the message"
)


@dataclass
class Stage:
    """What happens besides messages: `tell` shows it. `answers` is the update that the present call is made for."""

    tell: Callable[[str, dict[str, Any]], None]
    answers: int | None = None
    #: Of the buttons that were pressed: callback_query_id -> (chat, who).
    queries: dict[str, tuple[int, int]] = field(default_factory=dict)


class PageChats(Chats):
    """The chats of one bot, some of them the page's."""

    def __init__(self, bot: dict[str, Any], files: Files, book: Book, stage: Stage) -> None:
        shown = ("id", "is_bot", "first_name", "username")
        super().__init__({name: bot[name] for name in shown}, files)
        self.book = book
        self.stage = stage
        self._me = {"id": bot["id"], "first_name": bot["first_name"], "is_bot": True}

    def call(self, method: str, params: Params) -> Any:
        if method == "answerCallbackQuery":
            self._show_answer(params)
        chat = self.book.chats.get(whole(params, "chat_id", 0))
        if chat is None:
            return super().call(method, params)
        refuse_what_telegram_refuses(method, params)
        if gives_message(method) and method != "forwardMessage":
            return self._say(chat, content_of(method, params, self._files), params)
        if edits_message(method):
            return self._edit(chat, method, params)
        act = _ACTS.get(method)
        return act(self, chat, params) if act else super().call(method, params)

    # ── sending ──

    def _say(self, chat: Chat, content: dict[str, Any], params: Params) -> dict[str, Any]:
        markup = decoded(params.get("reply_markup"))
        replied = self._replied(chat, params)
        raw: dict[str, Any] = {
            "message_id": self.book.new_message_id(chat),
            "from": self._bot,
            "chat": chat_of(chat, self.book),
            "date": int(time.time()),
            **({"reply_to_message": replied_to(replied)} if replied else {}),
            **content,
        }
        if "inline_keyboard" in markup:
            raw["reply_markup"] = {"inline_keyboard": markup["inline_keyboard"]}
        keyboard = _keyboard(markup)
        said = Said(chat.id, raw["message_id"], self._me, raw, answers=self.stage.answers, keyboard=keyboard)
        return self.book.put(said).raw

    def _replied(self, chat: Chat, params: Params) -> Said | None:
        """Raises RefusedError when it is gone, unless that is allowed."""
        asked = decoded(params.get("reply_parameters")) or {"message_id": params.get("reply_to_message_id")}
        message_id = whole(asked, "message_id", 0)
        found = self.book.message(chat.id, message_id)
        is_allowed = asked.get("allow_sending_without_reply") or params.get("allow_sending_without_reply")
        if message_id and found is None and str(is_allowed).lower() not in ("true", "1"):
            raise RefusedError("Bad Request: message to be replied not found")
        return found

    def _album(self, chat: Chat, params: Params) -> list[dict[str, Any]]:  # type: ignore[override]
        media = [item for item in listed(params, "media") if isinstance(item, dict)]
        if not media:
            raise RefusedError("Bad Request: there is no media in the request")
        shown = [self._medium(item, params) for item in media]
        group = {"media_group_id": str(time.time_ns())}
        return [self._say(chat, {**content, **group}, params) for content in shown]

    def _medium(self, item: dict[str, Any], params: Params) -> dict[str, Any]:
        return {**file_shown(str(item.get("type")), item.get("media"), params, self._files), **marked(item, "caption")}

    def _copy(self, chat: Chat, params: Params) -> dict[str, int]:  # type: ignore[override]
        message_id = self._again(chat, params, whole(params, "message_id", 0), is_forward=False)["message_id"]
        return {"message_id": message_id}

    def _forward(self, chat: Chat, params: Params) -> dict[str, Any]:
        return self._again(chat, params, whole(params, "message_id", 0), is_forward=True)

    def _copies(self, chat: Chat, params: Params) -> list[dict[str, int]]:  # type: ignore[override]
        found = [whole({"id": each}, "id", 0) for each in listed(params, "message_ids")]
        made = [self._again(chat, params, message_id, is_forward=False) for message_id in found]
        return [{"message_id": raw["message_id"]} for raw in made]

    def _again(self, chat: Chat, params: Params, message_id: int, *, is_forward: bool) -> dict[str, Any]:
        source = self.book.message(whole(params, "from_chat_id", 0), message_id)
        if source is None:
            raise RefusedError(f"Bad Request: message to {'forward' if is_forward else 'copy'} not found")
        head = ("message_id", "from", "chat", "date", "edit_date", "reply_to_message", "reply_markup")
        content = {name: value for name, value in source.raw.items() if name not in head}
        if is_forward:
            origin = {"type": "user", "sender_user": source.raw["from"], "date": source.raw["date"]}
            content["forward_origin"] = origin
        elif "caption" in params:
            content = {**_without(content, "caption", "caption_entities"), **marked(params, "caption")}
        return self._say(chat, content, params)

    # ── what becomes of messages ──

    def _edit(self, chat: Chat, method: str, params: Params) -> Any:
        said = self.book.message(chat.id, whole(params, "message_id", 0))
        if said is None:
            raise RefusedError("Bad Request: message to edit not found")
        if not said.user["is_bot"]:
            raise RefusedError("Bad Request: message can't be edited")
        changed = self._changed(said.raw, method, params)
        markup = decoded(params.get("reply_markup"))
        changed.pop("reply_markup", None)
        if markup.get("inline_keyboard"):
            changed["reply_markup"] = {"inline_keyboard": markup["inline_keyboard"]}
        if changed == said.raw:
            raise RefusedError(NOT_MODIFIED)
        said.edited = said.edited or method != "editMessageReplyMarkup"
        said.raw = {**changed, "edit_date": int(time.time())}
        return self.book.put(said).raw

    def _changed(self, raw: dict[str, Any], method: str, params: Params) -> dict[str, Any]:
        match method:
            case "editMessageText" if "text" not in raw:
                raise RefusedError("Bad Request: there is no text in the message to edit")
            case "editMessageText":
                return {**_without(raw, "entities"), **content_of("sendMessage", params, self._files)}
            case "editMessageCaption":
                return {**_without(raw, "caption", "caption_entities"), **marked(params, "caption")}
            case "editMessageMedia":
                head = ("message_id", "from", "chat", "date", "edit_date", "reply_to_message", "reply_markup")
                kept = {name: value for name, value in raw.items() if name in head}
                return {**kept, **self._medium(decoded(params.get("media")), params)}
        return dict(raw)

    def _delete(self, chat: Chat, params: Params) -> bool:
        said = self.book.message(chat.id, whole(params, "message_id", 0))
        if said is None:
            raise RefusedError("Bad Request: message to delete not found")
        said.deleted = True
        self.book.put(said)
        return True

    def _delete_all(self, chat: Chat, params: Params) -> bool:
        """Those that are not there are passed over."""
        for each in listed(params, "message_ids"):
            said = self.book.message(chat.id, whole({"id": each}, "id", 0))
            if said is not None:
                said.deleted = True
                self.book.put(said)
        return True

    def _react(self, chat: Chat, params: Params) -> bool:
        said = self.book.message(chat.id, whole(params, "message_id", 0))
        if said is None:
            raise RefusedError("Bad Request: message to react not found")
        given = [each.get("emoji", "★") for each in listed(params, "reaction") if isinstance(each, dict)]
        said.reactions = given
        self.book.put(said)
        return True

    # ── besides messages ──

    def _act(self, chat: Chat, params: Params) -> bool:
        self.stage.tell("action", {"chat_id": chat.id, "action": str(params.get("action", ""))})
        return True

    def _show_answer(self, params: Params) -> None:
        refuse_what_telegram_refuses("answerCallbackQuery", params)
        query = self.stage.queries.get(str(params["callback_query_id"]))
        if query is None:
            return
        alert = str(params.get("show_alert", "")).lower() in ("true", "1")
        notice = {"chat_id": query[0], "user_id": query[1], "text": str(params.get("text") or ""), "alert": alert}
        self.stage.tell("notice", notice)

    def _about(self, chat: Chat, params: Params) -> dict[str, Any]:
        return {**chat_of(chat, self.book), "accent_color_id": 0, "max_reaction_count": 11}

    def _who(self, chat: Chat, params: Params) -> dict[str, Any]:
        user_id = whole(params, "user_id", 0)
        if user_id == self._bot["id"]:
            return {"status": "member", "user": self._bot}
        if user_id not in chat.users:
            raise RefusedError("Bad Request: user not found")
        return {"status": "member", "user": person(self.book, user_id)}

    def _how_many(self, chat: Chat, params: Params) -> int:
        return len(chat.users) + 1


_ACTS: dict[str, Callable[[PageChats, Chat, Params], Any]] = {
    "sendMediaGroup": PageChats._album,
    "copyMessage": PageChats._copy,
    "copyMessages": PageChats._copies,
    "forwardMessage": PageChats._forward,
    "deleteMessage": PageChats._delete,
    "deleteMessages": PageChats._delete_all,
    "setMessageReaction": PageChats._react,
    "sendChatAction": PageChats._act,
    "getChat": PageChats._about,
    "getChatMember": PageChats._who,
    "getChatMemberCount": PageChats._how_many,
}


def decoded(value: Any) -> dict[str, Any]:
    """A parameter that is an object, given as such or as its JSON; empty when it is none."""
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return {}
    return value if isinstance(value, dict) else {}


def _keyboard(markup: dict[str, Any]) -> list[list[str]] | None:
    """Under the input field; [] takes it away."""
    if markup.get("remove_keyboard"):
        return []
    rows = markup.get("keyboard")
    return rows and [[each.get("text", "") if isinstance(each, dict) else str(each) for each in row] for row in rows]


def _without(raw: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name not in names}
