"""ctx.session: data that a bot stores per chat, or per user, topic or custom key.

It is read at its first use and written once, with the settle of an update whose handler succeeded; an unchanged session
is not written. A session that is accepted decodes to an equal one, except that tuples become lists. The built-in keys
are those of updates.routing, so an update ordered by its chat may store its chat's session.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from chatlanes.bot.schedules import is_occurrence, session_key
from chatlanes.bot.stored import Stored, UnsafeKeyError
from chatlanes.updates import ORDERS, ParsedUpdate, by_chat, by_topic, by_user, number, parse

#: Maps an update to its session key; None: no session.
KeyFunction = Callable[[dict[str, Any]], str | None]


class SessionKey(NamedTuple):
    """The session key, and the key the session moves from when a group becomes a supergroup."""

    key: str | None
    moves_from: str | None = None


def session_key_of(update: dict[str, Any], session: str | KeyFunction) -> SessionKey:
    """`session`: the bot's setting (bot.py). Raises whatever a custom function raises."""
    if is_occurrence(update):
        return SessionKey(session_key(update))
    if not isinstance(session, str):
        return SessionKey(session(update))
    return OURS[session](parse(update))


def _of_user_in_chat(parsed: ParsedUpdate) -> SessionKey:
    chat, user = next(iter(by_chat(parsed)), None), next(iter(by_user(parsed)), None)
    return SessionKey(f"{chat}/{user}" if user not in (None, chat) else chat)


def _migrated(parsed: ParsedUpdate, keys: list[str]) -> SessionKey:
    """Both messages of a migration have the keys of both chats; the first one moves the session."""
    if parsed.migration is None or len(keys) != 2:
        return SessionKey(next(iter(keys), None))
    here, other = keys
    is_old = number(parsed.body.get("migrate_to_chat_id")) is not None
    return SessionKey(other, here) if is_old else SessionKey(here, other)


#: session -> the built-in values of ORDER_BY under which every update may store it. "chat" is not checked, because it
#: is also the default of bots without sessions: an update that cannot store its session raises when it is used.
ORDERS_FOR = {
    "user": ("user", "chat+user", "bot"),
    "chat+user": ("chat", "chat+user", "bot"),
    "topic": ("topic", "bot"),
}


def check_order(session: str | KeyFunction, order_by: str) -> None:
    """Raises ValueError if the bot's updates could not store the sessions that it asks for."""
    wanted = ORDERS_FOR.get(session, ()) if isinstance(session, str) else ()
    if wanted and order_by in ORDERS and order_by not in wanted:
        raise ValueError(
            f"session={session!r} does not work with ORDER_BY={order_by}, because two updates could write one session "
            f"at the same time; set ORDER_BY to {' or '.join(wanted)}, or choose another session"
        )


OURS: dict[str, Callable[[ParsedUpdate], SessionKey]] = {
    "chat": lambda parsed: _migrated(parsed, by_chat(parsed)),
    "user": lambda parsed: SessionKey(next(iter(by_user(parsed)), None)),
    "chat+user": _of_user_in_chat,
    "topic": lambda parsed: _migrated(parsed, by_topic(parsed)),
}

_BY_HAND = (
    "this update has no lane, so another update could write its session at the same time. To try a handler by hand, "
    "assign a session first: ctx.session = {}"
)


@dataclass(frozen=True)
class HandlerPlan:
    """The settings and properties of the bot that a run of its handler depends on. `session` is the key of sessions
    (chat, user, chat+user, topic, or a function), `session_ttl_s` how long one is kept after its last change. `late_s`:
    of the timer or schedule that runs now.
    """

    session: str | KeyFunction = "chat"
    session_ttl_s: float | None = None
    has_on_timer: bool = True
    order_by: str = "chat"
    queues: int = 1
    queue_group: str = "updates"
    stream_first: int = 30
    can_stop: bool = False
    late_s: float = 0.0


DEFAULT_PLAN = HandlerPlan()


class Session:
    """The session in one attempt at one update."""

    def __init__(self, update: dict[str, Any], plan: HandlerPlan, stored: Stored | None) -> None:
        self._update = update
        self._plan = plan
        self._stored = stored
        self._key = ""
        self._before: bytes | None = None
        self._data: dict[str, Any] | None = None

    @property
    def is_read(self) -> bool:
        return self._data is not None

    def get(self) -> dict[str, Any]:
        """The session. Raises SessionError, celery_lanes.LeaseLost, and ParkUpdate if Redis stays unavailable."""
        if self._data is None:
            self._data = self._load()
        return self._data

    def put(self, data: dict[str, Any]) -> None:
        """Replace the session. Raises the same as `get`, and TypeError if `data` is not a dict."""
        if not isinstance(data, dict):
            raise TypeError(f"a session is a dict, not a {type(data).__name__}; write ctx.session = {{…}}")
        if self._stored is not None:
            self.get()
        self._data = data

    def stage(self) -> None:
        """Stage the changed session in `stored`, after the handler. Raises the same as `get`."""
        if self._stored is None:
            if self._data is not None:
                raise SessionError(_BY_HAND)
            return
        if self._data is None:
            self._move_untouched(self._stored)
            return
        after = encode(self._data) if self._data else None
        if after == self._before:
            return
        check_keys(self._data)
        self._stored.stage(self._key, after, self._plan.session_ttl_s)

    def _load(self) -> dict[str, Any]:
        if self._stored is None:
            raise SessionError(_BY_HAND)
        key, moves_from = self._place()
        if key is None:
            raise SessionError(f"this update has no session: {self._described} gives it no key")
        try:
            if moves_from is not None:
                self._stored.move(moves_from, key)
            self._key, self._before = key, self._stored.load(key)
        except UnsafeKeyError as unsafe:
            advice = "change ORDER_BY so that it includes this key, or choose other sessions with Bot(…, session=…)"
            raise SessionError(f"the session ({self._described}) {unsafe}; {advice}") from None
        return decode(self._before, f"session …/{key}") if self._before is not None else {}

    def _move_untouched(self, stored: Stored) -> None:
        """Move the session to the supergroup even if the handler does not use it."""
        if not isinstance(self._plan.session, str):
            return
        key, moves_from = self._place()
        if key and moves_from and stored.is_safe(key) and stored.is_safe(moves_from):
            stored.move(moves_from, key)

    @property
    def _described(self) -> str:
        by = self._plan.session
        return f"session={by if isinstance(by, str) else getattr(by, '__name__', by)}"

    def _place(self) -> SessionKey:
        place = session_key_of(self._update, self._plan.session)
        if not isinstance(place.key, str | None):
            raise SessionError(f"{self._described} must return a text or None, not {place.key!r}")
        return place


#: A session is read and written whole with each update that uses it, and Redis serves no other client meanwhile.
MOST_BYTES = 1 << 20


class SessionError(Exception):
    """The session cannot be read or stored. The message says what to do."""


def decode(stored: bytes, where: str) -> dict[str, Any]:
    """Raises SessionError."""
    try:
        data = json.loads(stored)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise SessionError(f"the value of {where} in Redis is not a JSON object: correct it, or delete that key")
    return data


def encode(data: Any, name: str = "session", most_bytes: int = MOST_BYTES) -> bytes:
    """Raises SessionError, which names the place and the type of a value that JSON cannot represent.

    `name`: of the value, in errors.
    """
    # Users can send half a surrogate pair, which is not valid UTF-8; json.loads still reads it back.
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        encoded = text.encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:
        raise SessionError(_first_wrong(data, name) or f"the {name} cannot be encoded as JSON: {error}") from None
    if len(encoded) > most_bytes:
        raise SessionError(
            f"the {name} has {len(encoded):,} bytes as JSON, and at most {most_bytes:,} are allowed: "
            f"store large data in a database of your own, and its key in the {name}"
        )
    return encoded


def check_keys(data: Any, name: str = "session") -> None:
    """Raises SessionError for keys that are not text: JSON would convert them to text."""
    wrong = _first_wrong(data, name)
    if wrong:
        raise SessionError(wrong)


def _first_wrong(data: Any, name: str) -> str | None:
    try:
        return next(_wrong(data, name, ()), None)
    except RecursionError:
        return f"the {name} is nested too deeply for JSON"


def _wrong(value: Any, path: str, above: tuple[int, ...]) -> Iterator[str]:
    if id(value) in above:
        yield f"{path} contains itself, which JSON cannot represent"
    elif isinstance(value, dict):
        yield from _wrong_keys(value, path)
        for key, inner in value.items():
            yield from _wrong(inner, f"{path}[{key!r}]", (*above, id(value)))
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from _wrong(inner, f"{path}[{place}]", (*above, id(value)))
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path} is {value}, which JSON cannot represent"
    elif not isinstance(value, str | int | float | bool | None):
        kind = type(value).__name__
        yield f"{path} is a {kind}, which JSON cannot represent: use text, numbers, True, False, None, lists and dicts"


def _wrong_keys(value: dict[Any, Any], path: str) -> Iterator[str]:
    for key in value:
        if not isinstance(key, str):
            yield (
                f"{path} has the key {key!r} ({type(key).__name__}): JSON keys are text, so it would be read back as "
                f"{str(key)!r}; write {str(key)!r}"
            )
