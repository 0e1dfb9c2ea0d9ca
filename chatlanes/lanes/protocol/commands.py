"""Arguments of the verbs, and the commands of those verbs that are sent in a batch or on a pipelined connection.

Guarantees that a message which a worker could not lease is refused before anything is sent.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from chatlanes.lanes.errors import PublishRefused
from chatlanes.lanes.protocol import envelope, keys
from chatlanes.lanes.protocol.replies import Kind
from chatlanes.lanes.protocol.scripts import Argument, Script, script

#: Deaths before a message is buried, unless the app configures another number.
MAX_DEATHS = 5

#: A script visits every lane of a message in one step, so their number and size are limited.
MOST_LANES = 64
MOST_KEY_BYTES = 256
#: A commit with more writes, or with more bytes, is stored and done in portions of this size (committing.lua): no step
#: takes longer than a few milliseconds.
PORTION, PORTION_BYTES = 64, 256 * 1024
#: The answer of a commit whose writes are done by finish.lua.
UNFINISHED = 2
#: Lua's numbers are exact below this one.
MOST_NUMBER = 2**53

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TEXT = re.compile(r"[^\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_CONTROL_OR_BLANK = re.compile(r"[\x00-\x20\x7f]")
_POSITION = re.compile(r"(?:[^\x00-\x20\x7f]*[^\x00-\x20\x7f0-9])?[1-9][0-9]{0,14}")


class Group(NamedTuple):
    """Consecutive messages of the same lanes that belong together: they become one message, with one run.

    The run starts when no message has joined for `quiet_ms`, when the first one has waited for `max_wait_ms`, when
    there are `most` of them, or when a message follows in a lane that does not belong to them. With `interrupts`, a
    message that arrives during the run ends it: the next run gets all of them.
    """

    name: str
    quiet_ms: int
    max_wait_ms: int
    most: int
    interrupts: bool = False


class NewMessage(NamedTuple):
    """A message to append. It is remembered as seen by `once`, a scope and a number. A `problem` buries it at once.

    A message without lanes, or whose stored form has one of the control characters of a group, has no `group`.
    A message whose id exists is dropped. With `after_run`, if that one is leased, it joins its lanes when that one is
    settled, without its group.
    """

    id: str
    queue: str
    stored: str | bytes
    lanes: Sequence[str]
    once: tuple[str, int] | None = None
    problem: dict[str, Any] | None = None
    group: Group | None = None
    after_run: bool = False


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


Write = Set | Delete | Move | Add | Push | SetTimer | CancelTimer | MoveTimer


def only_seen(scope: str, number: int) -> NewMessage:
    """Replaces an unwanted message: its number counts as seen, so no message is held for it."""
    return NewMessage("", "", b"", (), once=(scope, number))


def append_command(messages: Iterable[NewMessage], guard: Guard | None = None, hold_ms: int = 0) -> list[Argument]:
    """The append as a command, for callers that send other commands with it."""
    guards, fence, sets = ([guard.key], guard.fence, guard.sets) if guard else ([], "", {})
    return script("append").command(
        guards,
        map(append_row, messages),
        seen_ttl_s=keys.SEEN_TTL_S,
        seen_block=keys.SEEN_BLOCK,
        fence=fence,
        sets=_lines(sets),
        hold_ms=hold_ms,
    )


def fetch_command(
    queues: Sequence[str],
    *,
    holder: str,
    lease_ms: int,
    room: int,
    holding: int,
    settles: Sequence[tuple[str, str]],
    max_deaths: int,
    first: int = 0,
    last: int = 0,
    last_room: int = 0,
    times: Mapping[str, int] | None = None,
) -> list[Argument]:
    """The script `turn` as a command, for callers that read the answer later. It examines at most 64 ids more than fit.

    The `first` queues are emptied before the others are read. The `last` ones are read when all others are empty, and
    if fewer than `last_room` messages were leased until then.
    """
    return script("turn").command(
        queues,
        settles,
        holder=holder,
        lease_ms=lease_ms,
        room=room,
        budget=room + 64,
        max_deaths=max_deaths,
        holding=holding,
        first=first,
        last=last,
        last_room=last_room,
        times=_lines(times or {}),
        settles=len(settles),
    )


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
    if isinstance(write, CancelTimer):
        return "cancel", timer_key(write.owner, write.name), "", 0
    return "delete", write.key, "", 0


def begin_command(
    message_id: str, fence: str, *, lease_ms: int, position: str, what: str, cursor: str = "0"
) -> list[Argument]:
    """Raises ValueError if the position does not end in a number, or `what` or the position contains a blank."""
    if not _POSITION.fullmatch(position) or not what or _CONTROL_OR_BLANK.search(what):
        raise ValueError(f"invalid call {position!r}, {what!r}: use <series><number> as position, and no blanks")
    return script("begin").command(
        id=message_id, fence=fence, lease_ms=lease_ms, position=position, what=what, cursor=cursor
    )


def end_command(message_id: str, fence: str, *, position: str, what: str, kind: Kind, outcome: bytes) -> list[Argument]:
    return script("end").command(
        id=message_id, fence=fence, position=position, what=what, kind=kind.value, outcome=outcome
    )


def shield_command(message_id: str, fence: str, *, shielded: bool) -> list[Argument]:
    return script("shield").command(id=message_id, fence=fence, shielded=int(shielded))


def commit_commands(
    message_id: str, fence: str, writes: Iterable[Write], *, skipped: bool = False
) -> list[tuple[Script, list[Argument]]]:
    """The scripts of a commit and their commands, to run in this order: one, or several that store the writes of a
    large commit before the one that decides.
    """
    commit, rows = script("commit"), list(map(write_row, writes))
    stage, commands, staged = script("stage"), list[tuple[Script, list[Argument]]](), 0
    portions = list(_portions(rows))
    for portion in portions if len(portions) > 1 else []:
        packed = [(_join_fields(*map(_plain, row)),) for row in portion]
        commands.append((stage, stage.command(group=packed, id=message_id, fence=fence, before=staged)))
        staged += len(portion)
    last = commit.command(group=() if staged else rows, id=message_id, fence=fence, skipped=int(skipped), staged=staged)
    return [*commands, (commit, last)]


def _plain(argument: Argument) -> str | bytes:
    return argument if isinstance(argument, bytes) else str(argument)


def _portions(rows: Sequence[tuple[Argument, ...]]) -> Iterator[list[tuple[Argument, ...]]]:
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


def finish_command(message_id: str) -> list[Argument]:
    return script("finish").command(id=message_id)


def read_commands(message_id: str, names: Iterable[str]) -> list[list[Argument]]:
    """Plain Redis commands; they write nothing."""
    commands: list[list[Argument]] = [["HMGET", keys.message(message_id), "state", "fence", "lanes"]]
    commands += [["GET", name] for name in names]
    return commands


def problem_json(problem: dict[str, Any]) -> str:
    """A problem as it is stored with a dead letter, with the current time."""
    return json.dumps({"at_ms": round(time.time() * 1000), **problem})


def timer_key(owner: str, name: str) -> str:
    """Raises ValueError for an owner or a name with control characters."""
    for part in (owner, name):
        if _CONTROL.search(part):
            raise ValueError(f"{part!r} has control characters: use a string without them")
    return keys.timer(owner, name)


def _lines(fields: Mapping[str, str | int]) -> str:
    return "".join(f"{name}\t{value}\n" for name, value in fields.items())


def _join_fields(*fields: str | bytes) -> bytes:
    """As lua/lib/timers.lua reads them."""
    plain = [field.encode() if isinstance(field, str) else field for field in fields]
    return b"".join(b"%d:%s" % (len(field), field) for field in plain)


def append_row(message: NewMessage) -> tuple[Argument, ...]:
    """The arguments of a message for append.lua. Raises PublishRefused."""
    lanes = joined_lanes(message.lanes)
    scope, number = ("", "") if message.once is None else check_once(message.once)
    problem = problem_json(message.problem) if message.problem else ""
    stored, group = _grouped(message)
    return message.id, message.queue, stored, scope, number, problem, group, int(message.after_run), lanes


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
        if is_named and all(map(_is_number, found[1:4])) and isinstance(found.interrupts, bool):
            return found
    raise PublishRefused(
        f"{group!r:.200} is not a group: use lanes.Group(name, quiet_ms=700, max_wait_ms=5000, most=20), with a name "
        "of 1 to 256 characters without control characters and whole numbers from 0 to 2**53 - 1"
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
    return "\n".join(lanes)


def _grouped(message: NewMessage) -> tuple[str | bytes, str]:
    """The stored form, and the group as collecting.lua reads it; empty for a message without a group."""
    group = message.group
    if group is None or not message.lanes or message.problem:
        return message.stored, ""
    stored = envelope.pack_collected(message.stored, interrupts=group.interrupts)
    if stored is None:
        return message.stored, ""
    check_group(group)
    fields = group.quiet_ms, group.max_wait_ms, group.most, int(group.interrupts), group.name
    return stored, " ".join(map(str, fields))
