"""What a bot's calls do to its chats, and what Telegram answers.

Promises message ids that grow per chat, the refusals a handler is most likely to meet (no chat, no text, text too
long, no message to edit), and a plausible result for everything else.
Does not keep the messages: whatever id is edited or deleted counts as existing.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import orjson

from sandbox.simulator.files import Files
from sandbox.simulator.methods import edits_message, gives_message, needs_chat
from sandbox.simulator.polls import whole

#: Characters in one message, after parsing of entities; Telegram counts UTF-16 units, which differ only for emoji.
LONGEST_TEXT = 4096

Params = dict[str, Any]


class RefusedError(Exception):
    """Telegram answers 400; the text is its description."""


class Chats:
    """The chats of one bot."""

    def __init__(self, bot: dict[str, Any], files: Files) -> None:
        self._bot = bot
        self._files = files
        self._last_message: defaultdict[str, int] = defaultdict(int)

    def call(self, method: str, params: Params) -> Any:
        """The result of a method. Raises RefusedError."""
        refuse_what_telegram_refuses(method, params)
        if gives_message(method):
            return self._message(params, self._new_message_id(params))
        if edits_message(method):
            return True if "inline_message_id" in params else self._edited(params)
        special = _SPECIAL.get(method)
        if special:
            return special(self, params)
        return {} if method.startswith("get") else True

    def _new_message_id(self, params: Params) -> int:
        chat = str(params["chat_id"])
        self._last_message[chat] += 1
        return self._last_message[chat]

    def _message(self, params: Params, message_id: int) -> dict[str, Any]:
        shown: Params = {name: params[name] for name in ("text", "caption") if name in params}
        head: Params = {"message_id": message_id, "from": self._bot, "chat": chat_of(params), "date": int(time.time())}
        return {**head, **shown}

    def _edited(self, params: Params) -> dict[str, Any]:
        return {**self._message(params, whole(params, "message_id", 0)), "edit_date": int(time.time())}

    def _album(self, params: Params) -> list[dict[str, Any]]:
        return [self._message(params, self._new_message_id(params)) for _ in listed(params, "media")]

    def _copy(self, params: Params) -> dict[str, int]:
        return {"message_id": self._new_message_id(params)}

    def _copies(self, params: Params) -> list[dict[str, int]]:
        return [self._copy(params) for _ in listed(params, "message_ids")]

    def _chat(self, params: Params) -> dict[str, Any]:
        return {**chat_of(params), "accent_color_id": 0, "max_reaction_count": 11}

    def _member(self, params: Params) -> dict[str, Any]:
        user = {"id": whole(params, "user_id", 0), "is_bot": False, "first_name": "Someone"}
        return {"status": "member", "user": user}

    def _file(self, params: Params) -> dict[str, Any]:
        file_id = str(params.get("file_id", ""))
        size = len(self._files.content_of(file_id))
        return {
            "file_id": file_id,
            "file_unique_id": file_id[-16:],
            "file_size": size,
            "file_path": self._files.path_of(file_id),
        }


_SPECIAL: dict[str, Callable[[Chats, Params], Any]] = {
    "sendMediaGroup": Chats._album,
    "copyMessage": Chats._copy,
    "copyMessages": Chats._copies,
    "forwardMessages": Chats._copies,
    "getChat": Chats._chat,
    "getChatMember": Chats._member,
    "getChatMemberCount": lambda chats, params: 2,
    "getChatAdministrators": lambda chats, params: [],
    "getMyCommands": lambda chats, params: [],
    "getFile": Chats._file,
    "stopPoll": lambda chats, params: {"id": "1", "question": "?", "options": [], "is_closed": True},
}


def refuse_what_telegram_refuses(method: str, params: Params) -> None:
    """Raises RefusedError in Telegram's words."""
    edits_in_chat = edits_message(method) and "inline_message_id" not in params
    if (needs_chat(method) or edits_in_chat) and str(params.get("chat_id", "")) == "":
        raise RefusedError("Bad Request: chat_id is empty")
    if (edits_in_chat or method in {"deleteMessage", "setMessageReaction"}) and not whole(params, "message_id", 0):
        raise RefusedError("Bad Request: message identifier is not specified")
    if method in {"sendMessage", "editMessageText"}:
        text = str(params.get("text", ""))
        if not text.strip():
            raise RefusedError("Bad Request: message text is empty")
        if len(text) > LONGEST_TEXT:
            raise RefusedError("Bad Request: message is too long")
    if method == "answerCallbackQuery" and not params.get("callback_query_id"):
        raise RefusedError('Bad Request: parameter "callback_query_id" is required')


def chat_of(params: Params) -> dict[str, Any]:
    """A Chat object: positive ids are private chats, others groups; a name with @ is a channel."""
    chat_id = params.get("chat_id", 0)
    if isinstance(chat_id, str) and chat_id.startswith("@"):
        return {"id": -1_000_000_000_000 - sum(chat_id.encode()), "type": "channel", "username": chat_id[1:]}
    number = whole(params, "chat_id", 0)
    return {"id": number, "type": "private" if number > 0 else "supergroup"}


def listed(params: Params, name: str) -> list[Any]:
    """A parameter that is a list, given as such or as its JSON."""
    value = params.get(name, [])
    if isinstance(value, str):
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            return []
    return value if isinstance(value, list) else []
