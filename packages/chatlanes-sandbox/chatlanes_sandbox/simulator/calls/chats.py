"""The effects of a bot's calls on its chats, and Telegram's answers.

Message ids grow per chat, common mistakes are refused as by Telegram, and methods that send, forward or edit return the
message. The last messages, also of users, are kept; once others were forgotten, any other id counts as an existing
message. An ephemeral message has the message_id 0, a receiver, and an ephemeral_message_id from the ids of its chat,
by which only its own methods find it.
"""

import json
import secrets
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from chatlanes.telegram.methods import needs, takes
from chatlanes_sandbox.simulator.calls.content import (
    FILE_METHODS,
    HEAD,
    captioned,
    changed,
    content_of,
    inline_keyboard,
    medium,
    options_of,
    without,
)
from chatlanes_sandbox.simulator.calls.drafts import Drafts, place_of
from chatlanes_sandbox.simulator.calls.files import FileStore
from chatlanes_sandbox.simulator.calls.markup import marked
from chatlanes_sandbox.simulator.calls.params import (
    Params,
    RefusedError,
    decoded,
    edits_message,
    gives_message,
    is_true,
    listed,
    whole,
)

#: The results of methods without an effect here, the smallest that the documentation allows: see `make bot-api`.
RESULTS_FILE = Path(__file__).with_name("results.json")
_RESULTS = json.loads(RESULTS_FILE.read_text())
#: Characters in one message, after parsing of entities; Telegram counts UTF-16 units, which differ only for emoji.
LONGEST_TEXT = 4096
#: The last messages, which can be edited, replied to and forwarded.
KEPT_MESSAGES = 2_000
#: Content that has a caption instead of a text.
WITH_CAPTION = frozenset({*FILE_METHODS.values(), "paid_media"})
#: https://core.telegram.org/bots/api#sendchataction
CHAT_ACTIONS = frozenset(
    {"typing", "choose_sticker", "find_location", "record_video", "record_video_note", "record_voice"}
    | {"upload_document", "upload_photo", "upload_video", "upload_video_note", "upload_voice"}
)
NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a "
    "current content and reply markup of the message"
)
#: The parameter of the methods that can send an ephemeral message.
EPHEMERAL = "ephemeral_message_parameters"
#: An ephemeral message may be replied to for this long.
EPHEMERAL_REPLY_S = 15
#: Telegram's blue.
TOPIC_COLOR = 0x6FB9F0
#: Fields of getChat in addition to those of the chat in messages.
FULL_CHAT = {
    "accent_color_id": 0,
    "max_reaction_count": 11,
    "accepted_gift_types": {
        "unlimited_gifts": True,
        "limited_gifts": True,
        "unique_gifts": True,
        "premium_subscription": True,
        "gifts_from_channels": True,
    },
}


#: (chat, message id) -> message; the oldest go first.
Kept = dict[tuple[int, int], dict[str, Any]]


class Chats:
    """The chats of one bot."""

    def __init__(self, bot: dict[str, Any], files: FileStore, drafts: Drafts | None = None) -> None:
        self._bot = bot
        self._files = files
        self.drafts = drafts or Drafts()
        self._last_message: defaultdict[str, int] = defaultdict(int)
        self._messages: Kept = {}
        #: The same of users, and of buttons that they have pressed.
        self._received: Kept = {}
        self._has_forgotten = False
        self._last_topic = 0
        #: Scope and language -> the commands of setMyCommands.
        self._commands: dict[tuple[str, str], list[dict[str, Any]]] = {}

    def call(self, method: str, params: Params) -> Any:
        """The result of a method. Raises RefusedError."""
        if "Ephemeral" in method:
            return self._ephemeral(method, params)
        if not takes(method, EPHEMERAL):
            params = without(params, EPHEMERAL)
        refuse_what_telegram_refuses(method, params)
        if method == "forwardMessage":
            return self._again(params, whole(params, "message_id", 0))
        if gives_message(method):
            return self._send(content_of(method, params, self._files), params)
        if edits_message(method):
            return True if "inline_message_id" in params else self._edit(method, params)
        if method in ("sendMessageDraft", "sendRichMessageDraft"):
            return self.drafts.put(method, params, self._files)
        special = SPECIAL.get(method)
        if special:
            return getattr(self, special)(params)
        return _RESULTS.get(method, True)

    def receive(self, update: dict[str, Any]) -> None:
        """Keep the messages of an update of users."""
        for event in update.values():
            for message in (event, self._pressed(event.get("message"))) if isinstance(event, dict) else ():
                if isinstance(message, dict) and isinstance(message.get("chat"), dict):
                    place = whole(message["chat"], "id", 0), id_of(message)
                    if place[1] and place not in self._messages:
                        self._put(self._received, place, message)

    def _pressed(self, message: Any) -> Any:
        """A message with buttons, which is the bot's, whatever the test has written."""
        return {**message, "from": self._bot} if isinstance(message, dict) else message

    def written(
        self, chat_id: int, user_id: int, content: dict[str, Any], *, is_ephemeral: bool = False
    ) -> dict[str, Any]:
        """A user's message, with the chat's next id."""
        params = {"chat_id": chat_id}
        written = {**self._head(params, self._next_id(params)), "from": person(user_id), **content}
        return ephemeral(written) if is_ephemeral else written

    def pressed(self, chat_id: int, user_id: int, message_id: int, button: str) -> dict[str, Any]:
        """The callback query of a press. Raises ValueError if the message does not have the button."""
        message = self._messages.get((chat_id, message_id), {})
        check_receiver(message, user_id)
        return callback_query(person(user_id), message, data_of(message, button))

    def stopped(self, chat_id: int, thread: int = 0) -> dict[str, Any]:
        """The stopped_message_generation of a press on Stop. Raises ValueError if no Stop button is shown."""
        return {"chat": self._chat_of({"chat_id": chat_id}), **self.drafts.stop((chat_id, thread))}

    def ephemeral_commands(self) -> set[str]:
        """The commands that clients send as ephemeral messages in groups."""
        return {str(each.get("command")) for known in self._commands.values() for each in known if is_secret(each)}

    def _put(self, kept: Kept, place: tuple[int, int], message: dict[str, Any]) -> None:
        if place not in kept and len(kept) >= KEPT_MESSAGES:
            del kept[next(iter(kept))]
            self._has_forgotten = True
        kept[place] = message

    def _found(self, params: Params, chat: str = "chat_id", purpose: str = "") -> dict[str, Any] | None:
        """The message that a call names; None if it is not kept. Raises RefusedError if a `purpose` needs one."""
        place = chat_of({"chat_id": params.get(chat, "")})["id"], whole(params, "message_id", 0)
        found = self._messages.get(place) or self._received.get(place)
        if found and not is_named(found, params):
            found = None
        if found is None and purpose and not self._has_forgotten:
            raise RefusedError(f"Bad Request: message to {purpose} not found")
        return found

    def _send(self, content: dict[str, Any], params: Params) -> dict[str, Any]:
        reply = self._reply(params)
        receiver = receiver_asked(params) and self._person(params, receiver_asked(params))
        sent = {**self._head(params, self._next_id(params)), **reply, **content, **options_of(params)}
        if receiver:
            return self._keep({**ephemeral(sent), "receiver_user": receiver}, params)
        self.drafts.end(place_of(params))
        return self._keep(sent, params)

    def _person(self, params: Params, user_id: int) -> dict[str, Any]:
        return person(user_id)

    def _next_id(self, params: Params) -> int:
        chat = str(params["chat_id"])
        self._last_message[chat] += 1
        return self._last_message[chat]

    def _head(self, params: Params, message_id: int) -> dict[str, Any]:
        return {"message_id": message_id, "from": self._bot, "chat": self._chat_of(params), "date": int(time.time())}

    def _chat_of(self, params: Params) -> dict[str, Any]:
        return chat_of(params)

    def _keep(self, message: dict[str, Any], params: Params, edited_by: str = "") -> dict[str, Any]:
        """Keep a new message, or one that a method has edited."""
        self._put(self._messages, (chat_of(params)["id"], id_of(message)), message)
        return message

    def _reply(self, params: Params) -> dict[str, Any]:
        """The message that is replied to; one that is not stored, such as a user's, has only its id."""
        asked = reply_asked(params)
        if secret := whole(asked, "ephemeral_message_id", 0):
            return self._secret_reply(params, secret)
        number = whole(asked, "message_id", 0)
        if not number or str(asked.get("chat_id", params["chat_id"])) != str(params["chat_id"]):
            return {}
        unknown = {"message_id": number, "chat": self._chat_of(params), "date": int(time.time())}
        replied = self._found({**params, "message_id": number}) or unknown
        quote = {"quote": {"text": str(asked["quote"]), "position": 0, "is_manual": True}} if asked.get("quote") else {}
        return {"reply_to_message": without(replied, "reply_to_message"), **quote}

    def _secret_reply(self, params: Params, number: int) -> dict[str, Any]:
        """The reply to a user's ephemeral message, which must itself be ephemeral."""
        replied = self._found({"chat_id": params["chat_id"], "message_id": number, "ephemeral_message_id": number})
        if replied is None or time.time() - replied["date"] > EPHEMERAL_REPLY_S:
            raise RefusedError("Bad Request: message to be replied not found")
        if not receiver_asked(params):
            raise RefusedError("Bad Request: a reply to an ephemeral message must be an ephemeral message")
        return {"reply_to_message": {k: v for k, v in replied.items() if k != "reply_to_message"}}

    def _ephemeral(self, method: str, params: Params) -> bool:
        """An edit or the deletion of an ephemeral message, as that of the message with this id."""
        if not whole(params, "receiver_user_id", 0):
            raise RefusedError("Bad Request: invalid user_id specified")
        self.call(method.replace("Ephemeral", ""), {**params, "message_id": params.get("ephemeral_message_id")})
        return True

    def _edit(self, method: str, params: Params) -> dict[str, Any]:
        found = self._found(params, purpose="edit")
        refuse_as_edit(method, found or {}, params)
        message = found or self._head(params, whole(params, "message_id", 0))
        edited = changed(message, method, params, self._files)
        if edited == found:
            raise RefusedError(NOT_MODIFIED)
        return self._keep({**edited, "edit_date": int(time.time())}, params, method)

    def _delete(self, params: Params) -> bool:
        self._found(params, purpose="delete")
        place = chat_of(params)["id"], whole(params, "message_id", 0)
        self._messages.pop(place, None)
        self._received.pop(place, None)
        return True

    def _delete_several(self, params: Params) -> bool:
        """Messages that do not exist are skipped."""
        for each in listed(params, "message_ids"):
            with suppress(RefusedError):
                self._delete({**params, "message_id": each})
        return True

    def _topic(self, params: Params) -> dict[str, Any]:
        self._last_topic += 1
        topic = {"message_thread_id": self._last_topic, "name": str(params.get("name", ""))}
        icon = {"icon_custom_emoji_id": str(found)} if (found := params.get("icon_custom_emoji_id")) else {}
        return {**topic, "icon_color": whole(params, "icon_color", TOPIC_COLOR), **icon}

    def _album(self, params: Params) -> list[dict[str, Any]]:
        items = [item for item in listed(params, "media") if isinstance(item, dict)]
        if not items:
            raise RefusedError("Bad Request: there is no media in the request")
        group = {"media_group_id": str(time.time_ns())}
        contents = [medium(item, params, self._files) for item in items]
        return [self._send({**content, **group}, params) for content in contents]

    def _again(self, params: Params, message_id: int, *, is_copy: bool = False) -> dict[str, Any]:
        """A forward or a copy. The content of a message that is not stored is unknown."""
        unknown = {"text": f"(message {message_id})", "from": self._bot, "date": int(time.time())}
        source = self._found({**params, "message_id": message_id}, "from_chat_id") or unknown
        content = without(source, *HEAD)
        if not is_copy:
            content["forward_origin"] = {"type": "user", "sender_user": source["from"], "date": source["date"]}
        elif "caption" in params:
            content = {**without(content, "caption", "caption_entities"), **captioned(params)}
        return self._send(content, params)

    def _copy(self, params: Params) -> dict[str, int]:
        return {"message_id": self._again(params, whole(params, "message_id", 0), is_copy=True)["message_id"]}

    def _copy_several(self, params: Params) -> list[dict[str, int]]:
        return self._several(params, is_copy=True)

    def _several(self, params: Params, *, is_copy: bool = False) -> list[dict[str, int]]:
        ids = [whole({"id": each}, "id", 0) for each in listed(params, "message_ids")]
        return [{"message_id": self._again(params, each, is_copy=is_copy)["message_id"]} for each in ids]

    def _stopped_poll(self, params: Params) -> dict[str, Any]:
        unknown = content_of("sendPoll", {"question": "?", "options": ["?"]}, self._files)
        number = whole(params, "message_id", 0)
        message = self._found({**params, "message_id": number}) or {}
        return {**message.get("poll", unknown["poll"]), "is_closed": True}

    def _chat(self, params: Params) -> dict[str, Any]:
        return {**self._chat_of(params), **FULL_CHAT}

    def _count(self, params: Params) -> int:
        return 2

    def _set_commands(self, params: Params) -> bool:
        self._commands[_scope(params)] = [each for each in listed(params, "commands") if isinstance(each, dict)]
        return True

    def _delete_commands(self, params: Params) -> bool:
        self._commands.pop(_scope(params), None)
        return True

    def _get_commands(self, params: Params) -> list[dict[str, Any]]:
        return self._commands.get(_scope(params), [])

    def _member(self, params: Params) -> dict[str, Any]:
        return {"status": "member", "user": person(whole(params, "user_id", 0))}

    def _file(self, params: Params) -> dict[str, Any]:
        file_id = str(params.get("file_id", ""))
        size = len(self._files.content_of(file_id))
        return {
            "file_id": file_id,
            "file_unique_id": file_id[-16:],
            "file_size": size,
            "file_path": self._files.path_of(file_id),
        }


#: Method -> the one of Chats that does it.
SPECIAL = {
    "sendMediaGroup": "_album",
    "deleteMessage": "_delete",
    "deleteMessages": "_delete_several",
    "createForumTopic": "_topic",
    "copyMessage": "_copy",
    "copyMessages": "_copy_several",
    "forwardMessages": "_several",
    "getChat": "_chat",
    "getChatMember": "_member",
    "getChatMemberCount": "_count",
    "getMyCommands": "_get_commands",
    "setMyCommands": "_set_commands",
    "deleteMyCommands": "_delete_commands",
    "getFile": "_file",
    "stopPoll": "_stopped_poll",
}


def refuse_what_telegram_refuses(method: str, params: Params) -> None:
    """Raises RefusedError with Telegram's description."""
    edits_in_chat = edits_message(method) and "inline_message_id" not in params
    needs_chat = needs(method, "chat_id")
    if (needs_chat or edits_in_chat) and str(params.get("chat_id", "")) == "":
        raise RefusedError("Bad Request: chat_id is empty")
    if needs_chat and not chat_of(params)["id"]:
        raise RefusedError("Bad Request: chat not found")
    if (edits_in_chat or method in {"deleteMessage", "setMessageReaction"}) and not whole(params, "message_id", 0):
        raise RefusedError("Bad Request: message identifier is not specified")
    if method in {"sendMessage", "editMessageText", "sendMessageDraft"}:
        refuse_as_text(method, params)
    inline_keyboard(params)
    if EPHEMERAL in params:
        refuse_as_ephemeral(params)
    if method == "answerCallbackQuery" and not params.get("callback_query_id"):
        raise RefusedError('Bad Request: parameter "callback_query_id" is required')
    if method == "sendChatAction" and str(params.get("action")) not in CHAT_ACTIONS:
        raise RefusedError("Bad Request: wrong parameter action in request")


def refuse_as_text(method: str, params: Params) -> None:
    """Raises RefusedError. A draft may be empty, and an edit may have rich content instead of a text."""
    text = marked(params, "text").get("text", "")
    may_be_empty = method == "sendMessageDraft" or (method == "editMessageText" and "rich_message" in params)
    if not text.strip() and not may_be_empty:
        raise RefusedError("Bad Request: message text is empty")
    if len(text) > LONGEST_TEXT:
        raise RefusedError("Bad Request: message is too long")


def refuse_as_edit(method: str, message: dict[str, Any], params: Params) -> None:
    """Raises RefusedError. A message of which nothing is known may be edited."""
    is_of_user = (message.get("from") or {}).get("is_bot") is False
    if is_of_user and "business_connection_id" not in params:
        raise RefusedError("Bad Request: message can't be edited")
    if method == "editMessageText" and not WITH_CAPTION.isdisjoint(message):
        raise RefusedError("Bad Request: there is no text in the message to edit")
    if method == "editMessageCaption" and "text" in message:
        raise RefusedError("Bad Request: there is no caption in the message to edit")


def refuse_as_ephemeral(params: Params) -> None:
    """Raises RefusedError. Telegram's own words are not known."""
    if not receiver_asked(params):
        raise RefusedError("Bad Request: invalid user_id specified")
    if whole(params, "chat_id", 0) > 0:
        raise RefusedError("Bad Request: ephemeral messages can be sent only to groups and supergroups")
    if whole(params, "live_period", 0):
        raise RefusedError("Bad Request: a live location can't be sent as an ephemeral message")


def receiver_asked(params: Params) -> int:
    """The receiver of the ephemeral message that a call sends; 0: it sends none."""
    return whole(decoded(params.get(EPHEMERAL)), "receiver_user_id", 0)


def ephemeral(message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "message_id": 0, "ephemeral_message_id": message["message_id"]}


def id_of(message: dict[str, Any]) -> int:
    """Its id among all messages of its chat."""
    return whole(message, "ephemeral_message_id", 0) or whole(message, "message_id", 0)


def is_named(message: dict[str, Any], params: Params) -> bool:
    """True if a call with this id means the message: only calls for its receiver mean an ephemeral one."""
    if "ephemeral_message_id" not in message or "ephemeral_message_id" not in params:
        return ("ephemeral_message_id" in message) == ("ephemeral_message_id" in params)
    receiver = message.get("receiver_user", {}).get("id")
    return receiver == (whole(params, "receiver_user_id", 0) or None)


def check_receiver(message: dict[str, Any], user_id: int) -> None:
    """Raises ValueError if another user does not see the message."""
    if message.get("receiver_user", {}).get("id", user_id) != user_id:
        raise ValueError("only its receiver sees this ephemeral message")


def is_secret(command: dict[str, Any]) -> bool:
    return is_true(command.get("is_ephemeral"))


def _scope(params: Params) -> tuple[str, str]:
    scope = decoded(params.get("scope"))
    named = [str(scope[name]) for name in ("type", "chat_id", "user_id") if name in scope]
    return ":".join(named) or "default", str(params.get("language_code") or "")


def reply_asked(params: Params) -> dict[str, Any]:
    """The reply that a call asks for, in the form of ReplyParameters."""
    return decoded(params.get("reply_parameters")) or {"message_id": params.get("reply_to_message_id")}


def person(user_id: int) -> dict[str, Any]:
    return {"id": user_id, "is_bot": False, "first_name": "Someone"}


def data_of(message: dict[str, Any], button: str) -> str:
    """The data of a message's button, named by its text or its data. Raises ValueError if it is not found."""
    if not message:
        raise ValueError("the message does not exist, or is not the bot's")
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    buttons = [each for row in rows for each in row if "callback_data" in each]
    for each in buttons:
        if button in (each.get("text"), each["callback_data"]):
            return str(each["callback_data"])
    others = ", ".join(repr(each.get("text")) for each in buttons) or "none"
    raise ValueError(f"the message has no button {button!r} with callback_data; its buttons: {others}")


def callback_query(user: dict[str, Any], message: dict[str, Any], data: str) -> dict[str, Any]:
    return {
        "id": str(secrets.randbits(62)),
        "from": user,
        "message": message,
        "chat_instance": str(abs(message["chat"]["id"]) * 7919),
        "data": data,
    }


def chat_of(params: Params) -> dict[str, Any]:
    """A Chat object: positive ids are private chats, others groups; a name with @ is a channel."""
    chat_id = params.get("chat_id", 0)
    if isinstance(chat_id, str) and chat_id.startswith("@"):
        return {
            "id": -1_000_000_000_000 - sum(chat_id.encode()),
            "type": "channel",
            "title": chat_id[1:],
            "username": chat_id[1:],
        }
    number = whole(params, "chat_id", 0)
    if number > 0:
        return {"id": number, "type": "private", "first_name": "Someone"}
    return {"id": number, "type": "supergroup", "title": f"Group {-number}"}
