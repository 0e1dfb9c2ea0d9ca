"""The arguments of the verbs, and the commands of those that are sent with others, or on pipelined connections.

Guarantees that a lane key that would be ambiguous is refused before anything is sent.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.replies import Kind
from chatlanes.lanes.protocol.scripts import Argument, script

#: Deaths before a message is buried, when the app does not say.
MAX_DEATHS = 5

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_CONTROL_OR_BLANK = re.compile(r"[\x00-\x20\x7f]")
_POSITION = re.compile(r"(?:[^\x00-\x20\x7f]*[^\x00-\x20\x7f0-9])?[1-9][0-9]{0,14}")


class NewMessage(NamedTuple):
    """A message to append. `once` is what it is remembered by: a scope and a number; `problem` buries it at once."""

    id: str
    queue: str
    stored: str | bytes
    lanes: Sequence[str]
    once: tuple[str, int] | None = None
    problem: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """Who may append, for appenders that take turns: the hash `key` has the field `fence`, and the others' are old."""

    key: str
    fence: str


@dataclass(frozen=True, slots=True)
class Set:
    """A write of a commit. `ttl_ms`: for how long; 0: for ever. The key must be none of the lanes' own."""

    key: str
    value: bytes
    ttl_ms: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """A write of a commit."""

    key: str


@dataclass(frozen=True, slots=True)
class Move:
    """A write of a commit: what `key` holds is `to`'s from now on; nothing happens when it holds nothing."""

    key: str
    to: str


Write = Set | Delete | Move


def only_seen(scope: str, number: int) -> NewMessage:
    """In place of a message that is not wanted: its number counts as seen, and nobody waits for it."""
    return NewMessage("", "", b"", (), once=(scope, number))


def append_command(messages: Iterable[NewMessage], guard: Guard | None = None, hold_ms: int = 0) -> list[Argument]:
    """The append as a command, for whoever sends more along with it."""
    guards, fence = ([guard.key], guard.fence) if guard else ([], "")
    return script("append").command(
        guards,
        map(_append_row, messages),
        seen_ttl_s=keys.SEEN_TTL_S,
        seen_block=keys.SEEN_BLOCK,
        fence=fence,
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
    times: Mapping[str, int] | None = None,
) -> list[Argument]:
    """The script `turn` as a command, for whoever reads the answer later. It looks at 64 ids more than fit.

    The `first` queues are emptied before the rest is looked at.
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
        times="".join(f"{field}\t{by}\n" for field, by in (times or {}).items()),
        settles=len(settles),
    )


def write_row(write: Write) -> tuple[Argument, ...]:
    """A write as commit.lua takes it."""
    if isinstance(write, Set):
        return "set", write.key, write.value, write.ttl_ms
    if isinstance(write, Move):
        return "move", write.key, write.to, 0
    return "delete", write.key, "", 0


def begin_command(message_id: str, fence: str, *, lease_ms: int, position: str, what: str) -> list[Argument]:
    """Raises ValueError for a position that does not end in a number, and for what has blanks in it."""
    if not _POSITION.fullmatch(position) or not what or _CONTROL_OR_BLANK.search(what):
        raise ValueError(f"{position!r} and {what!r} are no position and what of a call: <series><number>, no blanks")
    return script("begin").command(id=message_id, fence=fence, lease_ms=lease_ms, position=position, what=what)


def end_command(message_id: str, fence: str, *, position: str, what: str, kind: Kind, outcome: bytes) -> list[Argument]:
    return script("end").command(
        id=message_id, fence=fence, position=position, what=what, kind=kind.value, outcome=outcome
    )


def commit_command(message_id: str, fence: str, writes: Iterable[Write], *, skipped: bool) -> list[Argument]:
    return script("commit").command(group=map(write_row, writes), id=message_id, fence=fence, skipped=int(skipped))


def read_commands(message_id: str, names: Iterable[str]) -> list[list[Argument]]:
    """Redis' own: they write nothing."""
    commands: list[list[Argument]] = [["HMGET", keys.message(message_id), "state", "fence", "lanes"]]
    commands += [["GET", name] for name in names]
    return commands


def problem_json(problem: dict[str, Any]) -> str:
    """A problem as the dead letters keep it, with its time."""
    return json.dumps({"at_ms": round(time.time() * 1000), **problem})


def _append_row(message: NewMessage) -> tuple[Argument, ...]:
    for key in message.lanes:
        if not key or _CONTROL.search(key):
            raise ValueError(f"{key!r} is no lane key: it must be a text without control characters")
    scope, number = message.once or ("", "")
    problem = problem_json(message.problem) if message.problem else ""
    return message.id, message.queue, message.stored, scope, number, problem, "\n".join(message.lanes)
