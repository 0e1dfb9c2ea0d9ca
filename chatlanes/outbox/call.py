"""A call of the outbox: checked where it is sent from, and packed as a message of its lane. Asks no server.

Guarantees that what the list of the Bot API (bot_api.json) shows is refused at once: each mistake raises SendError
with a sentence that says what to do. A refusal by Telegram, such as of an unknown chat, is the result of the call.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from celery_lanes.protocol import NewMessage
from chatlanes.settings import Settings, SettingsError
from chatlanes.telegram.methods import check_method, check_parameters, needs, takes
from chatlanes.updates.intake import lanes_of, pack_update
from chatlanes.updates.routing import KeysError, keys_of, queue_of

#: The kind of the stored content: `{"send": {"method": …, "params": …, "chat": {"id": …}}}`.
KIND = "send"
#: The stored parameters of a call. Telegram's longest texts have some 10 KB.
MOST_BYTES = 1 << 20
#: Parameters that name the message to edit, or the user, instead of `chat_id`, which is optional then.
_INSTEAD_OF_CHAT = ("inline_message_id", "user_id")


class SendError(Exception):
    """The call cannot be sent as it is. The message says what to do."""


class OutboxCall(NamedTuple):
    """A checked call. `group`: that of its queue, whose backlog it joins."""

    message: NewMessage
    group: str
    max_pending: int

    @property
    def id(self) -> str:
        return self.message.id


def settings_for(bot: str | None, settings: Settings) -> Settings:
    """The settings of the bot with this name; None: of the only one. Raises SendError."""
    named = [each for each in settings.served if bot in (None, each.bot_name)]
    if len(named) > 1:
        raise SendError(f"there are several bots: pass bot= with one of {_names(settings)}")
    if not named:
        known = f"use one of {_names(settings)}" if settings.bots else "leave bot out: BOTS is not set, so there is one"
        raise SendError(f"bot={bot!r:.80}: there is no such bot here; {known}")
    try:
        named[0].bot_id  # noqa: B018  it is in the token
    except SettingsError as error:
        raise SendError(f"a call needs the token of its bot: {error}") from None
    return named[0]


def _names(settings: Settings) -> str:
    return ", ".join(each.bot_name for each in settings.served)


def call_of(settings: Settings, chat_id: int, method: str, once: str | None, params: dict[str, Any]) -> OutboxCall:
    """Check a call of the bot with these settings. Raises SendError, and ImportPathError for an invalid ORDER_BY."""
    if not isinstance(chat_id, int) or isinstance(chat_id, bool) or chat_id == 0:
        raise SendError(
            f"chat_id={chat_id!r:.80}: use the number of the chat, which names its lane; getChat finds that of a @name"
        )
    if "chat_id" in params:
        raise SendError(f"chat_id={params['chat_id']!r:.80}: leave it out; the chat of a call is {chat_id}")
    given = {name: value for name, value in params.items() if value is not None}
    full = _with_chat(method, chat_id, given) if isinstance(method, str) else given
    _check(method, full)
    content = {KIND: {"method": method, "params": full, **_place(chat_id, given)}}
    try:
        keys = keys_of(content, settings.order_by)
        lanes = lanes_of(settings.bot_id, keys)
    except KeysError as error:
        raise SendError(f"the lane of the call is unknown: {error}") from error
    message = NewMessage(
        id=f"{settings.bot_id}:{KIND}:{_name(chat_id, once)}",
        queue=queue_of(keys, 0, settings.queues, settings.queue_group),
        stored=pack_update(f"({KIND} {method}, chat {chat_id})", json.dumps(content, separators=(",", ":")).encode()),
        lanes=lanes,
        stoppable=False,
    )
    return OutboxCall(message, settings.queue_group, settings.max_pending)


def _name(chat_id: int, once: str | None) -> str:
    """The same for each call to a chat with the same key. Keys may be long, and personal: only a hash is stored."""
    if once is None:
        return secrets.token_hex(16)
    if not isinstance(once, str) or not once:
        raise SendError(f"once={once!r:.80}: use a text that identifies the call, such as 'order 17 is shipped'")
    return blake2b(f"{chat_id} {once}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _with_chat(method: str, chat_id: int, given: dict[str, Any]) -> dict[str, Any]:
    """`chat_id` is a parameter if the method has it, unless another one is given instead."""
    instead = any(takes(method, each) and not needs(method, each) and each in given for each in _INSTEAD_OF_CHAT)
    if not takes(method, "chat_id") or (instead and not needs(method, "chat_id")):
        return given
    return {"chat_id": chat_id, **given}


def _place(chat_id: int, given: dict[str, Any]) -> dict[str, Any]:
    """As in a message of this chat, so that the call has the lane of its topic, or of its business connection."""
    place: dict[str, Any] = {"chat": {"id": chat_id}}
    if "message_thread_id" in given:
        place |= {"message_thread_id": given["message_thread_id"], "is_topic_message": True}
    if "business_connection_id" in given:
        place["business_connection_id"] = given["business_connection_id"]
    return place


def _check(method: Any, params: dict[str, Any]) -> None:
    if not isinstance(method, str):
        raise SendError(f"method={method!r:.80}: use the name of a method, such as 'sendMessage'")
    if method.lower() == "getupdates":
        raise SendError("getUpdates cannot be sent: it could confirm updates that the poller has not stored")
    try:
        check_method(method)
        check_parameters(method, params)
    except ValueError as error:
        raise SendError(str(error)) from None
    size = sum(_size(name, value) for name, value in params.items())
    if size > MOST_BYTES:
        raise SendError(f"the parameters of {method} take {size:,} bytes: send at most {MOST_BYTES:,}")


def _size(name: str, value: Any) -> int:
    """The bytes of a value as JSON."""
    for inner in _values(value):
        if isinstance(inner, bytes | bytearray | memoryview | Path) or hasattr(inner, "read"):
            raise SendError(
                f"{name}: a file is not stored with a call; pass its URL, or a file_id: upload it once with BotApi.call"
            )
    try:
        return len(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise SendError(f"{name} is not JSON: pass dicts, lists, texts and numbers ({error})") from None


def _values(value: Any) -> Iterator[Any]:
    """The value and those inside of it, without recursion."""
    left, seen = [value], set[int]()
    while left:
        found = left.pop()
        yield found
        if isinstance(found, dict | list | tuple) and id(found) not in seen:
            seen.add(id(found))
            left += found.values() if isinstance(found, dict) else found
