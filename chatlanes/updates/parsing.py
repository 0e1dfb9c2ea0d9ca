"""Decodes an update and parses it: its kind, its chat, its user, and whether Telegram still accepts an answer. Pure.

Any JSON document is decoded, whatever its depth and the length of its numbers: a value that is too deep or long is
replaced by a Cut, and its update becomes a CutUpdate. Raises ValueError for malformed JSON. Any JSON value is parsed:
malformed parts count as absent, and unknown kinds are parsed like the known ones. An update younger than the lifetime
of its kind, counted from its append, is never stale.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

#: Every kind of Bot API 10.3.
KINDS = frozenset(
    {
        *("message", "edited_message", "channel_post", "edited_channel_post", "guest_message"),
        *("business_connection", "business_message", "edited_business_message", "deleted_business_messages"),
        *("message_reaction", "message_reaction_count", "poll", "poll_answer"),
        *("inline_query", "chosen_inline_result", "callback_query"),
        *("shipping_query", "pre_checkout_query", "purchased_paid_media", "subscription"),
        *("my_chat_member", "chat_member", "chat_join_request", "chat_boost", "removed_chat_boost"),
        *("managed_bot", "stopped_message_generation"),
    }
)

#: The kind of an update that has none, or whose kind is not a short identifier (kinds are used as metric labels).
UNKNOWN = "unknown"

#: Telegram's ids fit in 52 bits. A number that does not fit in 64 is not an id, and may be too long to print.
ID_LIMIT = 2**63

_KIND = re.compile(r"[a-z][a-z0-9_]{0,63}")
#: Ids become parts of Redis keys and log lines: no control characters, and only what UTF-8 can encode.
_TEXT_ID = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,256}")

_NOTHING: dict[str, Any] = {}

#: Telegram's updates have about a dozen levels; orjson can write 254.
MOST_LEVELS = 200
#: Python's limit for converting between int and str.
MOST_DIGITS = 4_300

#: Matches whole strings (so that brackets and digits in them do not count), brackets, integers that are too long, and
#: the opening quote of an unterminated string.
_TOKEN = re.compile(
    rf'"(?:[^"\\]|\\.)*"|[\[\]{{}}]|(?<![\d.eE+-])-?[0-9]{{{MOST_DIGITS + 1},}}(?![\d.eE])|"', re.DOTALL
)
#: Placeholder for a cut value. Not valid JSON, though `json` reads it, so an update can contain it only in a string.
_CUT = "NaN"


class ParsedUpdate(NamedTuple):
    """The parts of an update that the rest of the code reads."""

    kind: str
    body: dict[str, Any]  # the object under the kind's name
    place: dict[str, Any]  # the object that names the chat: the body, or the message that the body is about
    #: The chat where it happened. A voting channel, and the owner of a business connection, count as chats.
    chat: int | None

    @property
    def home(self) -> int | None:
        """The chat it belongs to: its chat, otherwise its user's private chat, which has the user's id."""
        return self.user if self.chat is None else self.chat

    @property
    def user(self) -> int | None:
        """The user who caused it. In boosts the user is in the `source` object."""
        body = self.body
        for holder in (body, *_sources(body)):
            for field in ("from", "user"):
                user = object_id(holder, field)
                if user is not None:
                    return user
        return None

    @property
    def acting_chat(self) -> int | None:
        """The chat on whose behalf it was done; `from` is then a placeholder user that all such chats share."""
        for field in ("sender_chat", "actor_chat", "voter_chat"):
            chat = object_id(self.body, field)
            if chat is not None:
                return chat
        return None

    @property
    def member(self) -> int | None:
        """The user whose membership a chat_member update changes; `user` is the one who changed it."""
        return object_id(part(self.body, "new_chat_member"), "user") if self.kind == "chat_member" else None

    @property
    def business_connection(self) -> str | None:
        return text_id(self.place.get("business_connection_id"))

    @property
    def ephemeral(self) -> int | None:
        """The id of an ephemeral message: in a group, only a member and the bot see it. None for any other update."""
        return number(self.place.get("ephemeral_message_id")) or None

    @property
    def guest_query(self) -> str | None:
        return text_id(self.place.get("guest_query_id"))

    @property
    def join_query(self) -> str | None:
        """The query of a request to join, sent to a bot that the group's owner has chosen to decide such requests."""
        return text_id(self.body.get("query_id")) if self.kind == "chat_join_request" else None

    @property
    def is_guest(self) -> bool:
        return self.kind == "guest_message" or self.guest_query is not None

    @property
    def topic(self) -> int | None:
        """The forum topic. Reply chains use the same field, so only messages flagged as topic messages count."""
        flagged = self.place.get("is_topic_message") is True or self.kind == "stopped_message_generation"
        return number(self.place.get("message_thread_id")) if flagged else None

    @property
    def migration(self) -> int | None:
        """The other chat id of a group that is migrated to a supergroup."""
        for field in ("migrate_to_chat_id", "migrate_from_chat_id"):
            if field in self.body and (other := number(self.body[field])) is not None:
                return other
        return None

    @property
    def migrates(self) -> tuple[int, int] | None:
        """The chat ids of a group and of the supergroup that it becomes."""
        chat, other = self.chat, self.migration
        if chat is None or other is None:
            return None
        return (chat, other) if number(self.body.get("migrate_to_chat_id")) is not None else (other, chat)

    @property
    def poll(self) -> str | None:
        return text_id(self.body.get("id" if self.kind == "poll" else "poll_id"))


def parse(update: Any) -> ParsedUpdate:
    """Parse any JSON value. An update has one kind; if it has several, the first known one counts."""
    kind, body = UNKNOWN, _NOTHING
    if isinstance(update, dict):
        for name, value in list(update.items()):  # copied, because a handler may change it meanwhile
            if name in KINDS and isinstance(value, dict):
                return _parsed(name, value)
            if kind == UNKNOWN and name != "update_id" and isinstance(name, str) and _KIND.fullmatch(name):
                kind, body = name, value if isinstance(value, dict) else _NOTHING
    return _parsed(kind, body)


def kind_of(update: Any) -> str:
    """`message`, `callback_query`, …; `unknown` if there is none."""
    return parse(update).kind


def chat_of(update: Any) -> int | None:
    """The chat an update belongs to (ParsedUpdate.home)."""
    return parse(update).home


def text_of(body: dict[str, Any]) -> Any:
    """The text of a message, its caption, or the text of its rich content; empty or None if it has none. Malformed
    text is returned as it is.
    """
    if text := body.get("text") or body.get("caption"):
        return text
    if "rich_message" not in body:
        return None
    from chatlanes.updates.rich_text import text_of_rich  # few bots get rich messages

    return text_of_rich(body["rich_message"])


def part(holder: dict[str, Any], field: str) -> dict[str, Any]:
    value = holder.get(field)
    return value if isinstance(value, dict) else _NOTHING


def object_id(holder: dict[str, Any], field: str) -> int | None:
    """The id of the chat or user under this field."""
    value = holder.get(field)
    return number(value.get("id")) if isinstance(value, dict) else None


#: callback_data of a button of `ctx.ask`: this, the id of the question, a colon, and the number of the button.
QUESTION_DATA = "chatlanes:"


def number(value: Any) -> int | None:
    return value if type(value) is int and -ID_LIMIT <= value < ID_LIMIT else None


def text_id(value: Any) -> str | None:
    return value if isinstance(value, str) and _TEXT_ID.fullmatch(value) else None


def _parsed(kind: str, body: dict[str, Any]) -> ParsedUpdate:
    place, chat = body, object_id(body, "chat")
    if chat is None and isinstance(message := body.get("message"), dict):
        place, chat = message, object_id(message, "chat")
    if chat is None:
        chat = object_id(body, "voter_chat")
    if chat is None:
        chat = number(body.get("user_chat_id"))
    return ParsedUpdate(kind, body, place, chat)


def _sources(body: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    if "source" in body:
        return (part(body, "source"),)
    return (part(part(body, "boost"), "source"),) if "boost" in body else ()


#: How long Telegram's Bot API server keeps an update of each kind, in seconds (from its source, version 10.0); other
#: kinds are kept for a day. Telegram refuses an answer to an older one ("query is too old").
LIFE_S = {
    "inline_query": 30.0,
    "callback_query": 150.0,
    "shipping_query": 150.0,
    "pre_checkout_query": 150.0,
    "chosen_inline_result": 600.0,
}


def is_stale(kind: str, age_s: float) -> bool:
    return age_s > LIFE_S.get(kind, float("inf"))


class Cut(str):
    """Replaces a value that was cut from an update."""

    __slots__ = ()


class CutUpdate(dict[str, Any]):
    """An update with cut values. It is buried, because a handler must not see incomplete content."""


def read(body: bytes) -> Any:
    """Decode JSON. Raises ValueError.

    orjson rejects half a surrogate pair; without the fallback, Telegram would resend such an update indefinitely.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        pass
    text = "".join(_shortened(body.decode("utf-8", "surrogatepass")))
    return _marked(json.loads(text, parse_constant=lambda _: Cut("(nested too deeply, or a number too long)")))


def _marked(document: Any) -> Any:
    """Turn updates with cut values into CutUpdates: the document itself, or those in a Bot API response."""
    if not isinstance(document, dict):
        return document
    if "update_id" in document:
        return CutUpdate(document) if _is_cut(document) else document
    if isinstance(updates := document.get("result"), list):
        document["result"] = [_marked(update) for update in updates]
    return document


def _is_cut(value: Any) -> bool:
    """True if the value contains a Cut. Recursive: the value has at most MOST_LEVELS levels."""
    if isinstance(value, dict | list):
        return any(map(_is_cut, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Cut)


def _shortened(text: str) -> Iterator[str]:
    """The pieces of the text with everything too deep or too long replaced. Looks only at brackets and numbers."""
    level, kept_from = 0, 0
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in "[{":
            level += 1
            if level == MOST_LEVELS + 1:
                yield text[kept_from : token.start()]
        elif first in "]}":
            level -= 1
            if level == MOST_LEVELS:
                yield _CUT
                kept_from = token.end()
        elif token[0] == '"':
            raise ValueError("unterminated string")
        elif first != '"' and level <= MOST_LEVELS:
            yield text[kept_from : token.start()]
            yield _CUT
            kept_from = token.end()
    if level > MOST_LEVELS:
        raise ValueError("unexpected end of the document")
    yield text[kept_from:]
