"""The messages and writes that callers hand to the verbs, and how the scripts receive them.

Guarantees that a message which a worker could not lease is refused before anything is sent.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from celery_lanes.errors import PublishRefused
from celery_lanes.protocol import envelope, keys
from celery_lanes.protocol.scripts import Argument

#: A script visits every lane of a message in one step, so their number and size are limited.
MOST_LANES = 64
MOST_KEY_BYTES = 256
#: A commit with more writes, or with more bytes, is stored and done in portions of this size (committing.lua): no step
#: takes longer than a few milliseconds.
PORTION, PORTION_BYTES = 64, 256 * 1024
#: Lua's numbers are exact below this one.
MOST_NUMBER = 2**53
#: Of a limit: a pause visits each of its messages that has a permit.
MOST_CONCURRENCY = 1000
#: Of the messages and the milliseconds of a rate: its times, in µs, stay below the number above.
MOST_RATE = 10**9

_RATE = re.compile(r"([1-9][0-9]{0,9})/([smh])")
_PERIODS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TEXT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")


class Paced(str):
    """A lane key with a rate: messages that have it start at least `interval_ms` after the one before in that lane."""

    rate: str
    interval_ms: int

    def __new__(cls, key: str, rate: str) -> Paced:
        """Raises PublishRefused unless the rate is a number of messages in a second, a minute or an hour: "10/m"."""
        found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
        period_ms = _PERIODS_MS[found[2]] if found else 0
        if found is None or int(found[1]) > period_ms:
            raise PublishRefused(
                f"{rate!r:.100} is not a rate: use rate='10/m', a whole number from 1 in a second (s), a minute (m) or "
                "an hour (h), at most 1000/s"
            )
        paced = super().__new__(cls, key)
        paced.rate, paced.interval_ms = rate, -(-period_ms // int(found[1]))
        return paced

    def __reduce__(self) -> tuple[Any, ...]:
        return Paced, (str(self), self.rate)


class Limited(str):
    """The key of a limit, which is not a lane: at most `concurrency` messages that have it run at the same time."""

    concurrency: int

    def __new__(cls, key: str, concurrency: int) -> Limited:
        """Raises PublishRefused unless this is a number of messages."""
        if not _is_number(concurrency) or not 1 <= concurrency <= MOST_CONCURRENCY:
            raise PublishRefused(
                f"concurrency={concurrency!r:.100} is not a number of messages: use a whole number from 1 to "
                f"{MOST_CONCURRENCY:,}"
            )
        limited = super().__new__(cls, key)
        limited.concurrency = concurrency
        return limited

    def __reduce__(self) -> tuple[Any, ...]:
        return Limited, (str(self), self.concurrency)


class Group(NamedTuple):
    """Consecutive messages of the same lanes that belong together: they become one message, with one run.

    The run starts when no message has joined for `quiet_ms`, when the first one has waited for `max_wait_ms`, when
    there are `most` of them, or when a message follows in a lane that does not belong to them. With `interrupts`, a
    message that arrives during the run ends it: the next run gets all of them. With `steers`, the run may take messages
    that arrive meanwhile and follow it in its lanes (Delivery.take_arrival); those that it leaves are the next run.
    """

    name: str
    quiet_ms: int
    max_wait_ms: int
    most: int
    interrupts: bool = False
    steers: bool = False


class Rate(NamedTuple):
    """How many messages of a `key` are appended, by all appenders together: `most` at once, and then one in every
    `per_ms / most`. A message that was seen before is not counted.

    A message over its rate is dropped, and remembered as seen like one that was added. With `over` "delay" it is added
    instead and waits for its turn, and its lanes with it; a group waits for the turn of its last message. With "mark"
    the first one within `per_ms` is added, without its group, and its delivery is marked (Delivery.is_marked).
    """

    key: str
    most: int
    per_ms: int
    over: Literal["drop", "delay", "mark"] = "drop"


class NewMessage(NamedTuple):
    """A message to append. It is remembered as seen by `once`, a scope and a number. A `problem` buries it at once.

    A message without lanes, or whose stored form has one of the control characters of a group, has no `group`.
    A message whose id exists is dropped. With `after_run`, if that one is leased, it joins its lanes when that one is
    settled, without its group.

    A message with `stops` ends the first message of each of its lanes, in the step in which it is appended: its run is
    interrupted, and it is handed out once more, stopped, to be settled. Nothing happens to one that waits,
    or is not `stoppable`.
    """

    id: str
    queue: str
    stored: str | bytes
    lanes: Sequence[str]
    once: tuple[str, int] | None = None
    problem: dict[str, Any] | None = None
    group: Group | None = None
    after_run: bool = False
    stops: bool = False
    stoppable: bool = True
    rate: Rate | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """Lets one of several appenders append: the one whose `fence` is in the field `fence` of the hash `key`.

    The append also sets the fields `sets` of the hash, such as another fence.
    """

    key: str
    fence: str
    sets: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Set:
    """A write of a commit. `ttl_ms`: the time to live; 0: no expiry. The key must not be one of the lanes' own keys."""

    key: str
    value: bytes
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """A write of a commit."""

    key: str


@dataclass(frozen=True, slots=True)
class Move:
    """A write of a commit: renames `key` to `to`, which is overwritten. Nothing happens if `key` does not exist."""

    key: str
    to: str


@dataclass(frozen=True, slots=True)
class Add:
    """A write of a commit: adds `by` to the number in the field of the hash `key`."""

    key: str
    field: str
    by: int = 1


@dataclass(frozen=True, slots=True)
class Push:
    """A write of a commit: adds a value to the end of the list `key`."""

    key: str
    value: str | bytes


@dataclass(frozen=True, slots=True)
class SetTimer:
    """A write of a commit: a message that joins its lanes when it is due, at the end of them.

    Empty `lanes` and an empty `queue` are those of the committed message. It replaces the timer of this `owner` and
    `name`. It is due at `at_ms`, the time in ms since 1970 (with `not_past` no earlier than the commit); if that is
    None, `in_ms` after the commit. An `id` that ends in a colon is completed by the time at which it is due, a colon
    and a unique number.
    """

    owner: str
    name: str
    id: str
    queue: str
    stored: str | bytes
    at_ms: int | None = None
    in_ms: int = 0
    lanes: Sequence[str] = ()
    not_past: bool = False


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """A write of a commit: removes a timer that is not due yet. Nothing happens if there is none."""

    owner: str
    name: str


@dataclass(frozen=True, slots=True)
class MoveTimer:
    """A write of a commit: gives a timer another owner and another message, and keeps its id and when it is due.

    Nothing happens if it is not the timer with this `id` any more. If the new owner has a timer of the same name, that
    one remains, and this one is removed.
    """

    owner: str
    name: str
    id: str
    to: str
    queue: str
    stored: str | bytes
    lanes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SetNote:
    """A write of a commit: the note of a lane, which later runs of messages whose first lane it is find in their
    delivery, until another commit changes it. None deletes it. At most 256 bytes, without control characters.
    """

    lane: str
    text: str | None

    def __post_init__(self) -> None:
        if self.text is not None and not _is_text(self.text):
            raise ValueError(
                f"{self.text!r:.100} is not a note: use 1 to {MOST_KEY_BYTES} bytes, no control characters"
            )


#: The handling of a message of a group that arrives during a run of the group.
Mode = Literal["queue", "collect", "interrupt", "steer"]


@dataclass(frozen=True, slots=True)
class SetMode:
    """A write of a commit: the mode of a lane, for messages with a group that are appended later and whose first lane
    it is. It replaces the mode of their `Group`. `queue`: each is a run of its own; `collect`: those that arrive during
    a run are the next one; `interrupt` and `steer`: as in Group. None: the mode of their `Group` again. An empty `lane`
    is the first one of the committed message.
    """

    mode: Mode | None
    lane: str = ""

    def __post_init__(self) -> None:
        if self.mode is not None and self.mode not in get_args(Mode):
            raise ValueError(f"{self.mode!r:.100} is not a mode: use {', '.join(get_args(Mode))} or None")


Write = Set | Delete | Move | Add | Push | SetTimer | CancelTimer | MoveTimer | SetNote | SetMode


def only_seen(scope: str, number: int) -> NewMessage:
    """Replaces an unwanted message: its number counts as seen, so no message is held for it."""
    return NewMessage("", "", b"", (), once=(scope, number))


def write_row(write: Write) -> tuple[Argument, ...]:
    """The arguments of a write for commit.lua."""
    if isinstance(write, Set):
        return "set", write.key, write.value, write.ttl_ms
    if isinstance(write, Move):
        return "move", write.key, write.to, 0
    if isinstance(write, Add):
        return "add", write.key, write.field, write.by
    if isinstance(write, Push):
        return "push", write.key, write.value, 0
    if isinstance(write, SetTimer):
        fields = _join_fields(write.id, write.queue, joined_lanes(write.lanes), write.stored)
        what, time_ms = ("from" if write.not_past else "at"), write.at_ms
        if time_ms is None:
            what, time_ms = "in", write.in_ms
        return what, timer_key(write.owner, write.name), fields, time_ms
    if isinstance(write, MoveTimer):
        fields = _join_fields(write.id, write.queue, joined_lanes(write.lanes), write.stored)
        return "assign", timer_key(write.owner, write.name), fields, timer_key(write.to, write.name)
    if isinstance(write, SetNote | SetMode):
        what, value = ("note", write.text) if isinstance(write, SetNote) else ("mode", write.mode)
        return what, write.lane, value or "", 0
    if isinstance(write, CancelTimer):
        return "cancel", timer_key(write.owner, write.name), "", 0
    return "delete", write.key, "", 0


def staged_row(row: tuple[Argument, ...]) -> bytes:
    """A write as stage.lua stores it."""
    return _join_fields(*[field if isinstance(field, bytes) else str(field) for field in row])


def portions(rows: Sequence[tuple[Argument, ...]]) -> Iterator[list[tuple[Argument, ...]]]:
    """The writes of a commit, in portions that one step can do."""
    portion, size = list[tuple[Argument, ...]](), 0
    for row in rows:
        length = sum(len(part) for part in row if isinstance(part, str | bytes))
        if portion and (len(portion) == PORTION or size + length > PORTION_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(row)
        size += length
    if portion:
        yield portion


def problem_json(problem: dict[str, Any]) -> str:
    """A problem as it is stored with a dead letter, with the current time."""
    return json.dumps({"at_ms": round(time.time() * 1000), **problem})


def timer_key(owner: str, name: str) -> str:
    """Raises ValueError for an owner or a name with control characters."""
    for part in (owner, name):
        if _CONTROL.search(part):
            raise ValueError(f"{part!r} has control characters: use a string without them")
    return keys.timer(owner, name)


def lines(fields: Mapping[str, str | int]) -> str:
    return "".join(f"{name}\t{value}\n" for name, value in fields.items())


def _join_fields(*fields: str | bytes) -> bytes:
    """As lua/lib/timers.lua reads them."""
    plain = [field.encode() if isinstance(field, str) else field for field in fields]
    return b"".join(b"%d:%s" % (len(field), field) for field in plain)


def append_row(message: NewMessage) -> tuple[Argument, ...]:
    """The arguments of a message for append.lua. Raises PublishRefused."""
    check_id(message.id)
    lanes = joined_lanes(message.lanes)
    check_limits(message.lanes, message.group, message.rate)
    scope, number = ("", "") if message.once is None else check_once(message.once)
    problem = problem_json(message.problem) if message.problem else ""
    stored, group = _grouped(message)
    flags = int(message.after_run), 1 if message.stops else 0 if message.stoppable else 2
    return message.id, message.queue, stored, scope, number, problem, group, *flags, _rate(message.rate), lanes


def check_id(message_id: object) -> None:
    """Raises PublishRefused for an id with control characters. Celery also accepts a number."""
    if _CONTROL.search(str(message_id)):
        raise PublishRefused(f"{message_id!r:.100} is not the id of a message: use a text without control characters")


def check_lanes(lanes: Any) -> None:
    """Raises PublishRefused unless this is a list of lane keys that a message can have."""
    if not isinstance(lanes, list | tuple):
        raise PublishRefused(f"{lanes!r:.100} is not a list of lane keys: use lanes.headers(['customer:9'])")
    if len(lanes) > MOST_LANES:
        raise PublishRefused(f"{len(lanes):,} lane keys: a message has at most {MOST_LANES}")
    for key in lanes:
        if not _is_text(key):
            raise PublishRefused(
                f"{key!r:.100} is not a lane key: use a text of 1 to {MOST_KEY_BYTES} bytes without control characters"
            )
    if _are_plain(lanes):
        return
    limits = {key: key.concurrency for key in lanes if isinstance(key, Limited)}
    for key in lanes:
        if key in limits and not isinstance(key, Limited):
            raise PublishRefused(
                f"{str(key)!r:.100} is a lane and a limit of one message: a lane runs one message at a time, so leave "
                "out the limit, or give it another key"
            )
        if isinstance(key, Limited) and key.concurrency != limits[key]:
            raise PublishRefused(
                f"{str(key)!r:.100} has the limits {key.concurrency} and {limits[key]} in one message: use one of them"
            )


def _are_plain(lanes: Iterable[str]) -> bool:
    """True if none is a limit or has a rate."""
    return {*map(type, lanes)} <= {str}


def check_once(once: Any) -> tuple[str, int]:
    """Raises PublishRefused unless this is a scope and a number that can be remembered."""
    if isinstance(once, list | tuple) and len(once) == 2 and _is_text(once[0]) and _is_number(once[1]):
        return once[0], once[1]
    raise PublishRefused(
        f"once={once!r:.100} is not a scope and a number: use once=('order', 17), with a text of 1 to "
        f"{MOST_KEY_BYTES} bytes without control characters and a whole number from 0 to 2**53 - 1"
    )


def check_group(group: Any) -> Group:
    """Raises PublishRefused unless these are the fields of a Group."""
    if isinstance(group, list | tuple) and len(group) == len(Group._fields):
        found = Group(*group)
        is_named = isinstance(found.name, str) and _TEXT.fullmatch(found.name)
        modes = found.interrupts, found.steers
        if is_named and all(map(_is_number, found[1:4])) and {*map(type, modes)} == {bool} and modes != (True, True):
            return found
    raise PublishRefused(
        f"{group!r:.200} is not a group: use lanes.Group(name, quiet_ms=700, max_wait_ms=5000, most=20), with a name "
        "of 1 to 256 characters without control characters, whole numbers from 0 to 2**53 - 1, and interrupts or steers"
    )


def _rate(rate: Rate | None) -> str:
    """A rate as append.lua reads it. Raises PublishRefused."""
    if rate is None:
        return ""
    key, most, per_ms, over = rate
    is_counted = all(_is_number(each) and 0 < each <= MOST_RATE for each in (most, per_ms))
    if _is_text(key) and is_counted and over in ("drop", "delay", "mark"):
        return f"{most} {per_ms} {over} {key}"
    raise PublishRefused(
        f"{rate!r:.200} is not a rate: use a key of 1 to {MOST_KEY_BYTES} bytes without control characters, and whole "
        f"numbers of messages and ms up to {MOST_RATE:,}"
    )


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or not _TEXT.fullmatch(value):
        return False
    return value.isascii() or len(value.encode()) <= MOST_KEY_BYTES


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_NUMBER


def joined_lanes(lanes: Sequence[str]) -> str:
    """As the scripts read them. Raises PublishRefused."""
    check_lanes(lanes)
    if _are_plain(lanes):
        return "\n".join(lanes)
    intervals_ms = dict.fromkeys((key for key in lanes if not isinstance(key, Limited)), 0)
    for key in lanes:
        if isinstance(key, Paced):
            intervals_ms[key] = key.interval_ms
    # Sorted: each message takes its permits in this order (lua/lib/ready.lua).
    limits = {str(key): key.concurrency for key in lanes if isinstance(key, Limited)}
    lines = [*intervals_ms, *(f"{keys.LIMITED}{most} {key}" for key, most in sorted(limits.items()))]
    if any(intervals_ms.values()):
        lines.append(keys.PACED + " ".join(map(str, intervals_ms.values())))
    return "\n".join(lines)


def check_limits(lanes: Sequence[str], group: Group | None, rate: Rate | None = None) -> None:
    """Raises PublishRefused for a message of a group, or with a `Rate`, that has a lane with a pace, or a limit."""
    if (group or rate) is not None and any(isinstance(key, Paced | Limited) for key in lanes):
        raise PublishRefused(
            "a message of a group, or with a Rate, cannot have a lane with a rate or a limit (lanes.limit): leave out "
            "one of the two. quiet_ms and max_wait_ms of a Group say how often it runs"
        )


def _grouped(message: NewMessage) -> tuple[str | bytes, str]:
    """The stored form, and the group as joining.lua reads it; empty for a message without a group."""
    group = message.group
    if group is None or not message.lanes or message.problem:
        return message.stored, ""
    stored = envelope.pack_collected(message.stored, interrupts=group.interrupts, steers=group.steers)
    if stored is None:
        return message.stored, ""
    check_group(group)
    mode = 1 if group.interrupts else 2 if group.steers else 0
    fields = group.quiet_ms, group.max_wait_ms, group.most, mode, group.name
    return stored, " ".join(map(str, fields))
