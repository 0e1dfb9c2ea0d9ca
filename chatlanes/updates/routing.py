"""Chooses the keys of an update, and from them its lanes and its queue; and whether it stops the run before it.

For any JSON and every built-in order, the keys are distinct, safe for Redis keys and log lines, and the same in every
process. They depend on nothing but the update.
"""

import logging
import re
import reprlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, partial
from time import monotonic
from typing import Any
from zlib import crc32

import orjson

from chatlanes.logs import Secrets
from chatlanes.logs.errors import message_of
from chatlanes.settings.checks import NO_CONTROL
from chatlanes.settings.imports import import_function
from chatlanes.updates.parsing import ParsedUpdate, chat_of, kind_of, parse

__all__ = ["KeysError", "chat_of", "check_order_by", "is_express", "keys_of", "kind_of", "queue_of"]

log = logging.getLogger("chatlanes")

Order = Callable[[dict[str, Any]], list[str]]
#: A built-in order.
OurOrder = Callable[[ParsedUpdate], list[str]]
#: From an update to whether it stops the run before it.
Stops = Callable[[dict[str, Any], ParsedUpdate], bool]

#: Payment queries: Telegram waits 10 s for the answer, while the user sees a payment dialog. It waits as long for the
#: answer to a request to join that has a query.
EXPRESS_KINDS = frozenset({"pre_checkout_query", "shipping_query"})
PAID = frozenset({"successful_payment", "refunded_payment"})
NEW_MESSAGES = frozenset({"message", "channel_post", "business_message"})
STOP_BUTTON = "stopped_message_generation"
#: After a failure the username of a bot is not asked for again sooner.
ASK_AGAIN_AFTER_S = 60.0

#: The lanes that a message may have: MOST_LANES in celery_lanes/protocol/messages.py, whose import loads Celery.
MOST_KEYS = 64
#: The one key of ORDER_BY=bot.
WHOLE_BOT = "bot"

_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,256}")


class KeysError(Exception):
    """The function that ORDER_BY or COLLECT names failed on this one update, or returned an invalid value."""


def keys_of(update: dict[str, Any], order_by: str = "chat", parsed: ParsedUpdate | None = None) -> list[str]:
    """The update's keys; the first one chooses its queue. An update without keys may run at any time.

    `parsed`: the same update, if it is already parsed. A built-in order never raises; a user's function may raise
    ImportPathError and KeysError.
    """
    built_in = ORDERS.get(order_by)
    keys = _custom(order_by)(update) if built_in is None else built_in(parsed or parse(update))
    return list(dict.fromkeys(keys)) if len(keys) > 1 else keys


def copy_of(update: dict[str, Any]) -> dict[str, Any]:
    """The update for a user's function, which may change it: its id and content are needed afterwards."""
    try:
        copied: dict[str, Any] = orjson.loads(orjson.dumps(update))
    except TypeError:  # half a surrogate pair, a number beyond 64 bits, more than 254 levels
        copied = deepcopy(update)
    return copied


def queue_of(keys: list[str], update_id: int, queues: int, group: str = "updates") -> str:
    """The queue `<group>.<n>` of these keys. crc32 is stable; Python's hash() differs between processes."""
    text = keys[0] if keys else str(update_id)
    return f"{group}.{crc32(text.encode()) % queues}"


def is_express(parsed: ParsedUpdate) -> bool:
    """True if it belongs in the bot's express queue, because Telegram waits only briefly for the answer."""
    return parsed.kind in EXPRESS_KINDS or parsed.join_query is not None


class OwnName:
    """The username of a bot, which `ask` asks Telegram for when it is first needed."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask
        self._name: str | None = None
        self._again_s = float("-inf")

    def __call__(self) -> str | None:
        """In lower case; None while it is not known. Blocks while Telegram is asked."""
        if self._name is None and monotonic() >= self._again_s:
            try:
                self._name = self._ask().lower()
            except Exception as failure:
                self._again_s = monotonic() + ASK_AGAIN_AFTER_S
                log.warning("the bot's username is not known: %s", message_of(failure, Secrets()))
        return self._name


def unknown() -> None:
    """In place of an OwnName: a command for any bot counts as one for this bot."""


def controlling(control: str, own_name: Callable[[], str | None] = unknown) -> Stops | None:
    """The function that is true for updates that stop the run before them; None if CONTROL is `none`.

    Raises ImportPathError. A function of the user that fails is logged, and its update stops nothing.
    """
    if control == NO_CONTROL:
        return None
    commands = frozenset(control.split(","))
    return _custom_control(control) if ":" in control else partial(_is_command, commands, own_name)


def _is_command(
    commands: frozenset[str], own_name: Callable[[], str | None], update: dict[str, Any], parsed: ParsedUpdate
) -> bool:
    """True for the Stop button of a draft, and for a new message that begins with a command, unless for another bot."""
    if parsed.kind == STOP_BUTTON:
        return True
    text = parsed.body.get("text")
    if not isinstance(text, str) or not text.startswith("/") or parsed.kind not in NEW_MESSAGES:
        return False
    command, for_bot, name = text.split(maxsplit=1)[0].lower().partition("@")
    return command in commands and (not for_bot or own_name() in (name, None))


@cache
def _custom_control(control: str) -> Stops:
    function = import_function("CONTROL", control, "true or false")

    def by_function(update: dict[str, Any], parsed: ParsedUpdate) -> bool:
        try:
            with explained(f"{control} (CONTROL)"):
                return bool(function(copy_of(update)))
        except KeysError as failure:
            log.error("%s: this update stops nothing", failure)
            return False

    return by_function


def is_urgent(parsed: ParsedUpdate) -> bool:
    """True if the update is about a payment, or Telegram waits only briefly for the answer. It is never held back or
    stopped, whatever a user's function returns.
    """
    return is_express(parsed) or not PAID.isdisjoint(parsed.body)


def check_order_by(order_by: str) -> None:
    """Call at start, so that an invalid ORDER_BY is found before the first update. Raises ImportPathError."""
    if order_by not in ORDERS:
        _custom(order_by)


def by_chat_and_user(parsed: ParsedUpdate) -> list[str]:
    return by_chat(parsed) + _actors(parsed)


def by_topic(parsed: ParsedUpdate) -> list[str]:
    if parsed.topic is None or parsed.chat is None or parsed.is_guest or parsed.business_connection:
        return by_chat(parsed)
    return [f"topic:{parsed.chat}:{parsed.topic}"]


def by_user(parsed: ParsedUpdate) -> list[str]:
    """By its user, otherwise by its chat. A private chat's id is its user's id."""
    if actors := _actors(parsed):
        return actors
    chat = parsed.chat
    return [f"user:{chat}"] if chat is not None and chat > 0 and not parsed.is_guest else by_chat(parsed)


def by_bot(parsed: ParsedUpdate) -> list[str]:
    """One lane for all updates of the bot, so each update waits for the one before."""
    return [WHOLE_BOT]


def by_chat(parsed: ParsedUpdate) -> list[str]:
    """By its chat, otherwise by its user's private chat (same id), otherwise by its poll, otherwise no key."""
    chat = parsed.chat
    if chat is None:
        return _private_chat_or_poll(parsed)
    if parsed.is_guest:
        return [f"guest:{chat}"]
    if connection := parsed.business_connection:
        return [f"business:{connection}:{chat}"]
    other = parsed.migration
    return [f"chat:{chat}"] if other is None else [f"chat:{chat}", f"chat:{other}"]


ORDERS: dict[str, OurOrder] = {
    "chat": by_chat,
    "chat+user": by_chat_and_user,
    "topic": by_topic,
    "user": by_user,
    "bot": by_bot,
}


def _private_chat_or_poll(parsed: ParsedUpdate) -> list[str]:
    if (user := parsed.user) is not None:
        return [f"chat:{user}"]
    return [f"poll:{poll}"] if (poll := parsed.poll) else []


def _actors(parsed: ParsedUpdate) -> list[str]:
    if (acting_chat := parsed.acting_chat) is not None:
        return [f"chat:{acting_chat}"]
    return [f"user:{user}" for user in (parsed.user, parsed.member) if user is not None]


@cache
def _custom(order_by: str) -> Order:
    function = import_function("ORDER_BY", order_by, "a list of keys")

    def by_function(update: dict[str, Any]) -> list[str]:
        with explained(f"{order_by} (ORDER_BY)"):
            return _checked(order_by, function(copy_of(update)))

    return by_function


def _checked(order_by: str, keys: Any) -> list[str]:
    if not isinstance(keys, list):
        raise KeysError(f"{order_by} (ORDER_BY) must return a list of keys, not {type(keys).__name__}")
    if len(keys) > MOST_KEYS:
        raise KeysError(f"{order_by} (ORDER_BY) returned {len(keys):,} keys: an update has at most {MOST_KEYS}")
    for key in keys:
        if not is_name(key):
            raise KeysError(
                f"{order_by} (ORDER_BY): {reprlib.repr(key)} is not a key: a key has 1 to 256 characters, no control "
                "characters"
            )
    return list(map(str.__str__, keys))  # not a member of an Enum, whose text depends on the version of Python


def is_name(value: object) -> bool:
    """True for a text that can be a key, or the name of a group."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def name_by(
    setting: str, function: Callable[[dict[str, Any]], Any], update: dict[str, Any], what: str, most_bytes: int = 1024
) -> str | None:
    """The result of a user's function, the value of `setting`, for the update: a name, or None. Raises KeysError, which
    says `what` it may return instead.
    """
    with explained(setting):
        name = function(copy_of(update))
        if name is None:
            return None
        if not is_name(name) or len(name.encode()) > most_bytes:
            raise KeysError(f"{setting} must return None, or {what}, not {reprlib.repr(name)}")
        return str.__str__(name)


@contextmanager
def explained(function: str) -> Iterator[None]:
    """Wraps a call of a user's function. Raises KeysError, whatever the function raises or returns."""
    try:
        yield
    except KeysError:
        raise
    except (Exception, SystemExit) as failure:
        text = message_of(failure, Secrets())
        raise KeysError(f"{function} failed with {type(failure).__name__}: {text}") from failure
