"""Timers of a bot: `ctx.later`, `ctx.cancel`, `ctx.timers` and `ctx.timer`.

A timer is set or cancelled in the step that settles the update, or not at all. When it is due, it joins the end of the
lanes of the update that set it. Only the clock of Redis decides.

Both messages about a group that becomes a supergroup move its timers to the new chat, in the step that settles the
message, and record its id. A timer of the old chat that runs nevertheless finds this record, and is set again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

from celery_lanes.protocol import CancelTimer, MoveTimer, Set, SetTimer, StoredTimer, Write
from celery_lanes.worker.delivery import Delivery
from chatlanes.bot.schedules import KIND as SCHEDULE
from chatlanes.bot.session import HandlerPlan, SessionError, check_keys, encode
from chatlanes.bot.stored import Stored
from chatlanes.updates import ParsedUpdate, by_chat, is_express, keys_of, number, parse, part, queue_of, text_id
from chatlanes.updates.intake import pack_update
from chatlanes.updates.parsing import read

#: The kind of the updates that are timers. They have no update_id, and no update of Telegram is without.
KIND = "timer"
#: Larger data belongs in a database; a million timers wait in Redis' memory.
MOST_BYTES = 64 * 1024
MOST_S = 10 * 366 * 86_400.0

When = float | timedelta | datetime


class TimerError(ValueError):
    """A timer cannot be set. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer of a chat. Its repr does not contain its data."""

    name: str
    """Unique in its chat."""

    data: Any = field(repr=False)
    """The JSON value that was given to `ctx.later`."""

    due: datetime
    """When it is due, in UTC."""

    late_s: float = 0.0
    """In `on_timer`: seconds from `due` to the start of this run, by the clock of Redis."""


def is_timer(update: dict[str, Any]) -> bool:
    return KIND in update and "update_id" not in update


def id_prefix(bot_id: str) -> str:
    """The beginning of a timer's message id. When the timer is set, Redis completes it with `<ms>:<number>`."""
    return f"{bot_id}:{KIND}:"


def due_of(message_id: str) -> datetime | None:
    """When the timer with this message id was due: `<bot id>:timer:<ms>:<number>`. None: it is not one."""
    due_ms = message_id.split(":")[2:3]
    return time_of(int(due_ms[0])) if f":{KIND}:" in message_id and due_ms and due_ms[0].isdecimal() else None


class Timers:
    """The timers in one run of one update. Without a lane, as in tests, they are only listed."""

    def __init__(self, update: dict[str, Any], plan: HandlerPlan, stored: Stored | None) -> None:
        self._update, self._parsed = update, parse(update)
        self._plan = plan
        self._stored = stored
        self._numbers = count(1) if stored is None else stored.numbers
        self._by_hand: dict[str, Timer] = {}

    @property
    def is_changed_by_hand(self) -> bool:
        """True if timers were set without a lane, which nothing stores."""
        return bool(self._by_hand)

    def running(self) -> Timer:
        """The timer that runs now. Raises LookupError if this update is not one."""
        if not is_timer(self._update):
            raise LookupError(f"an update of kind {self._parsed.kind} is not a timer; use ctx.timer in on_timer")
        body = part(self._update, KIND)
        due = due_of(self._stored.message_id) if self._stored else None
        return Timer(str(body.get("name", "")), body.get("data"), due or datetime.now(UTC), self._plan.late_s)

    def set(self, when: When, data: Any, name: str | None) -> str:
        """Raises TimerError and TypeError."""
        _keys(self._parsed)
        if not self._plan.has_on_timer:
            raise TimerError("this bot has no on_timer that could run the timer: write Bot(…, on_timer=…)")
        at_ms, in_ms = _checked_time(when)
        if name is None:
            name = f"{self._message_name}/{next(self._numbers)}"
        name, body = _checked_name(name), _data(data)
        if self._stored is None:
            now = datetime.now(UTC)
            due = now + timedelta(milliseconds=in_ms) if at_ms is None else max(time_of(at_ms), now)
            self._by_hand[name] = Timer(name, body.get("data"), due)
        else:
            self.stage(self._stored, KIND, name, body, at_ms, in_ms)
        return name

    def stage(
        self, stored: Stored, kind: str, name: str, body: dict[str, Any], at_ms: int | None, in_ms: int = 0
    ) -> None:
        """Set a timer of this chat, whose message is an update of this kind. Raises TimerError."""
        parsed = self._parsed
        owner, *former = self._owners(_keys(parsed))
        for each in former:
            stored.stage_timer(CancelTimer(each, name))
        content = json_of({kind: {"name": name, **body, **_place(parsed)}})
        chat = parsed.migrates[1] if parsed.migrates else parsed.home
        packed = pack_update(described(kind, chat), content)
        queue, id_ = self._queue(), id_prefix(stored.bot_id)
        stored.stage_timer(SetTimer(owner, name, id_, queue, packed, at_ms, in_ms, not_past=True))

    def cancel(self, name: str) -> None:
        """Raises TimerError and TypeError."""
        name, keys = _checked_name(name), _keys(self._parsed)
        if self._stored is None:
            self._by_hand.pop(name, None)
            return
        for owner in self._owners(keys):
            self._stored.stage_timer(CancelTimer(owner, name))

    def all(self) -> list[Timer]:
        """The timers of the chat, the next one first. Raises TimerError, and ParkUpdate if Redis does not answer."""
        keys = _keys(self._parsed)
        if self._stored is None:
            return sorted(self._by_hand.values(), key=lambda timer: timer.due)
        found = self._stored.timers(*self._owners(keys))
        return [timer_from(each) for each in found if KIND in content_of(each)]

    @property
    def _message_name(self) -> str:
        """The part of a name that is the same in every run of this update, and different from other updates'."""
        if self._stored is not None:
            return self._stored.message_id.partition(":")[2]
        return str(self._update.get("update_id", KIND))

    def _owners(self, keys: list[str]) -> list[str]:
        assert self._stored is not None  # noqa: S101  checked by the callers
        return [f"{self._stored.bot_id}/{key}" for key in keys]

    def _queue(self) -> str:
        """Empty: that of the update. A timer of a payment is not urgent, and one of a broadcast does not yield."""
        if not is_express(self._parsed) and self._parsed.kind != "broadcast":
            return ""
        keys = keys_of(self._update, self._plan.order_by, self._parsed)
        return queue_of(keys, number(self._update.get("update_id")) or 0, self._plan.queues, self._plan.queue_group)


def _keys(parsed: ParsedUpdate) -> list[str]:
    """The key of the chat that has the timers. After that of a supergroup that of its group, in a message about that.
    Raises TimerError.
    """
    if parsed.kind == SCHEDULE:
        raise TimerError(
            "a schedule has no chat that a timer could belong to: write another Schedule for the later time, or start "
            "a ctx.broadcast, whose handler has the chat of each recipient"
        )
    if parsed.migrates:
        return [f"chat:{chat}" for chat in reversed(parsed.migrates)]
    keys = by_chat(parsed)[:1]
    if not keys:
        raise TimerError(f"an update of kind {parsed.kind} has no chat, user or poll that a timer could belong to")
    return keys


def described(kind: str, chat: int | None) -> str:
    """The arguments of a timer's task, as Flower shows them."""
    return f"({kind}, chat {chat})"


def timer_from(found: StoredTimer) -> Timer:
    body = part(content_of(found), KIND)
    return Timer(found.name, body.get("data"), time_of(found.at_ms))


def content_of(found: StoredTimer) -> dict[str, Any]:
    """The content of a timer's message: the update that runs when it is due. Empty if it is not one of a bot."""
    try:
        content = read(found.stored.partition(b"\n")[2])[0][0]
    except (ValueError, LookupError, TypeError):
        return {}
    return content if isinstance(content, dict) else {}


def _checked_time(when: When) -> tuple[int | None, int]:
    """The time at which it is due, in ms since 1970; or None, and the ms until then. Redis decides if it is past."""
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            raise TimerError(f"later({when!r}): a datetime needs a time zone, as in datetime.now(UTC)")
        seconds = (when - datetime.now(UTC)).total_seconds()
    elif isinstance(when, timedelta):
        seconds = when.total_seconds()
    elif isinstance(when, bool) or not isinstance(when, int | float):
        raise TypeError(f"later({when!r}): write seconds, a timedelta, or a datetime with a time zone")
    else:
        seconds = when
    if not seconds <= MOST_S:  # also not a number; math.isnan fails for a huge int
        raise TimerError(f"later({when!r}): a timer may be set for at most ten years from now")
    if isinstance(when, datetime):
        return max(round(when.timestamp() * 1000), 0), 0
    return None, round(max(seconds, 0) * 1000)


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a timer is a text, not a {type(name).__name__}")
    if text_id(name) is None:
        raise TimerError(f"{name[:300]!r} is not a name of a timer: it has 1 to 256 characters, no control characters")
    return name


def _data(data: Any) -> dict[str, Any]:
    if data is None:
        return {}
    try:
        encoded = encode(data, "data", MOST_BYTES)
        check_keys(data, "data")
    except SessionError as error:
        raise TimerError(f"later(): {error}") from None
    return {"data": json.loads(encoded)}  # a copy: the handler may change its own


def _place(parsed: ParsedUpdate) -> dict[str, Any]:
    """The parts of the update by which a timer has the same chat, user, topic and session, where updates have them."""
    chat: dict[str, Any] | None = None
    if parsed.chat is not None:
        found = part(parsed.place, "chat")
        chat = {"id": parsed.chat, **({"type": found["type"]} if "type" in found else {})}
    if parsed.migrates:
        chat = {"id": parsed.migrates[1], "type": "supergroup"}
    topic = number(part(parsed.place, "direct_messages_topic").get("topic_id"))
    place = {
        "chat": chat,
        "from": parsed.user and {"id": parsed.user},
        "sender_chat": parsed.acting_chat and {"id": parsed.acting_chat},
        "message_thread_id": parsed.topic,
        "is_topic_message": None if parsed.topic is None else True,
        "direct_messages_topic": topic and {"topic_id": topic},
        "business_connection_id": parsed.business_connection,
        "guest_query_id": parsed.guest_query or ("unknown" if parsed.is_guest else None),
        "poll_id": parsed.poll,
    }
    return {name: value for name, value in place.items() if value is not None}


def json_of(content: Any) -> bytes:
    try:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a surrogate pair, which users can send
        return json.dumps(content, separators=(",", ":")).encode()


def time_of(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


#: <bot id>/<id of a group>: string: the id of its supergroup
MIGRATED = "migrated:"
#: The ids of groups are above this one, and those of supergroups below it (https://core.telegram.org/api/bots/ids).
_LEAST_GROUP = -1_000_000_000_000


class Migration(NamedTuple):
    """The chat ids of a group and of its supergroup."""

    old: int
    new: int

    def rename(self, key: str) -> str:
        """The owner or lane of the supergroup for that of the group; others stay as they are."""
        bot, slash, chat = key.rpartition("/")
        return f"{bot}/chat:{self.new}" if slash and chat == f"chat:{self.old}" else key

    def readdress(self, content: dict[str, Any]) -> bytes:
        """The stored form of a timer's message, for the new chat."""
        body = dict(part(content, KIND))
        body["chat"] = {"id": self.new, "type": "supergroup"}
        if part(body, "sender_chat").get("id") == self.old:  # an anonymous administrator
            body["sender_chat"] = {"id": self.new}
        return pack_update(described(KIND, self.new), json_of({KIND: body}))


def stage_moves(migration: Migration, stored: Stored, plan: HandlerPlan) -> None:
    """Move the timers of the old chat when the update is settled, and record the new one. Raises ParkUpdate."""
    owner = f"{stored.bot_id}/chat:{migration.old}"
    timers = stored.ask(lambda store: store.timers(owner))
    stored.stage_first(_moves(migration, stored.bot_id, timers, plan))


def _moves(migration: Migration, bot_id: str, timers: Iterable[StoredTimer], plan: HandlerPlan) -> list[Write]:
    writes: list[Write] = [Set(_record_key(bot_id, migration.old), str(migration.new).encode())]
    for timer, content in ((timer, content_of(timer)) for timer in timers):
        if not is_timer(content):  # the timeout of a conversation, which is one of the old chat
            continue
        lanes, queue = _moved(migration, timer.lanes, plan)
        to, stored = migration.rename(timer.owner), migration.readdress(content)
        writes.append(MoveTimer(timer.owner, timer.name, timer.id, to, queue or timer.queue, stored, lanes))
    return writes


def set_again(update: dict[str, Any], delivery: Delivery, plan: HandlerPlan) -> SetTimer | None:
    """The write that sets a timer that has fired again, if its chat has become a supergroup: for the new chat, due at
    once. None: it runs now. Also if an earlier run has made calls, because they would be repeated.

    Its message id is its name until then, so that it replaces no timer of the new chat. Raises LeaseLost and RedisAway.
    """
    chat = number(part(part(update, KIND), "chat").get("id"))
    if not is_timer(update) or chat is None or not _LEAST_GROUP < chat < 0:
        return None
    message_id = delivery.id
    bot_id, due = message_id.partition(":")[0], due_of(message_id)
    found = delivery.read([_record_key(bot_id, chat)])
    if found.values[0] is None or delivery.has_made_calls():
        return None
    migration = Migration(chat, int(found.values[0]))
    owner, (new_lanes, queue) = f"{bot_id}/chat:{migration.new}", _moved(migration, found.lanes, plan)
    at_ms = None if due is None else round(due.timestamp() * 1000)
    stored = migration.readdress(update)
    return SetTimer(owner, message_id, id_prefix(bot_id), queue, stored, at_ms, lanes=new_lanes)


def _record_key(bot_id: str, chat: int) -> str:
    return f"{MIGRATED}{bot_id}/{chat}"


def _moved(migration: Migration, lanes: list[str], plan: HandlerPlan) -> tuple[list[str], str]:
    """The lanes for the new chat, and their queue; empty: the queue stays the same."""
    known = [lane for lane in lanes if lane]
    renamed = [migration.rename(lane) for lane in known]
    if renamed == known:
        return renamed, ""
    key = renamed[0].partition("/")[2]
    return renamed, queue_of([key], 0, plan.queues, plan.queue_group)
