"""The lanes in Redis: one method for each script, typed outcomes.

Promises that each method is one atomic step, and that a step with an old fence changes nothing and says LOST.
Does not retry: a step whose answer was lost may have happened, and the caller knows whether it may run twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from redis import Redis

from tasks.lanes import keys
from tasks.lanes.errors import LeaseLost
from tasks.lanes.scripts import Argument, script

#: A script that looks at more in one step would hold up everybody else's.
SWEEP_LIMIT = 500
REPAIR_LIMIT = 200
PURGE_LIMIT = 500

#: Deaths before a message is buried, when the app does not say.
MAX_DEATHS = 5

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Outcome(Enum):
    """What became of a step that needs a lease."""

    DONE = 1
    LOST = 0  # somebody else holds a newer fence; nothing was changed


@dataclass(frozen=True, slots=True)
class NewMessage:
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
class Appended:
    """What an append did. `pending` is the backlog after it: all messages that are not buried."""

    added: int
    seen: int
    buried: int
    pending: int


@dataclass(frozen=True, slots=True)
class Leased:
    """A message handed out. `replayed_s` is the time since its replay, seconds; None: never replayed."""

    id: str
    fence: str
    queue: str
    died: int
    failed: int
    replayed_s: float | None
    stored: bytes


@dataclass(frozen=True, slots=True)
class Turned:
    """What a turn brought. `more`: ready ones are left; `suspects`: some of them want a worker for themselves."""

    lost: list[str]
    more: bool
    suspects: bool
    leased: list[Leased]


@dataclass(frozen=True, slots=True)
class Swept:
    """`next_ms` is None when nothing is leased or delayed."""

    expired: int
    due: int
    next_ms: int | None


class Store:
    """The verbs. The client must not decode responses and must not retry (connect.py makes such clients)."""

    def __init__(self, client: Redis) -> None:
        self.client = client

    def append(self, messages: Iterable[NewMessage], guard: Guard | None = None) -> Appended:
        """Append a whole batch, all or nothing. Raises LeaseLost when the guard has another fence by now, and
        ValueError for a lane key with control characters.
        """
        return append_answer(script("append").run(self.client, append_command(messages, guard)))

    def turn(
        self,
        queues: Sequence[str],
        *,
        holder: str,
        lease_ms: int,
        room: int,
        holding: int = 0,
        settles: Sequence[tuple[str, str]] = (),
        max_deaths: int = MAX_DEATHS,
    ) -> Turned:
        """Settle (id, fence) pairs and lease up to `room` ready messages, in one step."""
        command = turn_command(
            queues,
            holder=holder,
            lease_ms=lease_ms,
            room=room,
            holding=holding,
            settles=settles,
            max_deaths=max_deaths,
        )
        return turn_answer(script("turn").run(self.client, command))

    def renew(self, leases: Iterable[tuple[str, str]], lease_ms: int) -> list[str]:
        """Extend leases; returns the ids whose lease was lost."""
        return _texts(self._run("renew", group=leases, lease_ms=lease_ms))

    def release(self, leases: Iterable[tuple[str, str]], *, died: bool = False) -> list[str]:
        """Give messages back untouched; returns the ids that were lost."""
        return _texts(self._run("release", group=[(id_, fence, int(died)) for id_, fence in leases]))

    def retry(self, message_id: str, fence: str, *, delay_ms: int, problem: dict[str, Any]) -> Outcome:
        """Give a message back after a failure; its lanes wait until it is due."""
        return Outcome(self._run("retry", id=message_id, fence=fence, delay_ms=delay_ms, problem=_problem(problem)))

    def bury(self, message_id: str, fence: str, problem: dict[str, Any]) -> Outcome:
        """Move a message to the dead letters; its lanes go on."""
        return Outcome(self._run("bury", id=message_id, fence=fence, problem=_problem(problem)))

    def replay(self, message_id: str) -> bool:
        """Put a buried message at the end of its lanes; False when no such message is buried."""
        return bool(self._run("replay", id=message_id))

    def purge(self, queue: str) -> int:
        """Bury what is ready in a queue, and what becomes ready by that; returns how many were buried."""
        problem = _problem({"type": "Purged", "message": f"queue {queue} was purged"})
        total = 0
        while buried := int(self._run("purge", keys=[queue], limit=PURGE_LIMIT, problem=problem)):
            total += buried
        return total

    def sweep(self, lease_ms: int) -> Swept:
        """Take back expired leases and make due retries ready: at most SWEEP_LIMIT of each."""
        expired, due, next_ms = self._run("sweep", lease_ms=lease_ms, limit=SWEEP_LIMIT)
        return Swept(expired, due, None if next_ms < 0 else next_ms)

    def repair(self, cursor: str, lease_ms: int) -> tuple[str, int]:
        """Mend a few messages' keys; returns the next cursor ("0" after a whole round) and how many were mended."""
        following, mended = self._run("repair", cursor=cursor, limit=REPAIR_LIMIT, lease_ms=lease_ms)
        return following.decode(), mended

    def reconcile(self, holder: str, held: Iterable[str]) -> int:
        """Release what is leased to `holder` but not among `held`; returns how many that were."""
        return int(self._run("reconcile", group=[(id_,) for id_ in held], holder=holder))

    def holds(self, message_id: str, fence: str) -> bool:
        """Whether this fence still holds the message."""
        state, now = self.client.hmget(keys.message(message_id), "state", "fence")
        return state == b"leased" and now == fence.encode()

    def pending(self) -> int:
        """The backlog: every message that is not buried."""
        return int(self.client.hget(keys.COUNTS, "pending") or 0)

    def _run(
        self, name: str, *, group: Iterable[Sequence[Argument]] = (), keys: Sequence[str] = (), **fixed: Argument
    ) -> Any:
        verb = script(name)
        return verb.run(self.client, verb.command(keys, group, **fixed))


def append_command(messages: Iterable[NewMessage], guard: Guard | None = None) -> list[Argument]:
    """The append as a command, for whoever sends more along with it."""
    guards, fence = ([guard.key], guard.fence) if guard else ([], "")
    rows = map(_append_row, messages)
    return script("append").command(guards, rows, seen_ttl_s=keys.SEEN_TTL_S, seen_block=keys.SEEN_BLOCK, fence=fence)


def append_answer(answer: list[int] | None) -> Appended:
    if answer is None:
        raise LeaseLost("somebody else appends by now; nothing was appended")
    return Appended(*answer)


def turn_command(
    queues: Sequence[str],
    *,
    holder: str,
    lease_ms: int,
    room: int,
    holding: int,
    settles: Sequence[tuple[str, str]],
    max_deaths: int,
) -> list[Argument]:
    """The turn as a command, for whoever reads the answer later. It looks at 64 ids more than there is room for."""
    return script("turn").command(
        queues,
        settles,
        holder=holder,
        lease_ms=lease_ms,
        room=room,
        budget=room + 64,
        max_deaths=max_deaths,
        holding=holding,
        settles=len(settles),
    )


def turn_answer(answer: list[Any]) -> Turned:
    lost, more, suspects, *flat = answer
    leased = [
        Leased(
            id=flat[i].decode(),
            fence=flat[i + 1].decode(),
            queue=flat[i + 2].decode(),
            died=flat[i + 3],
            failed=flat[i + 4],
            replayed_s=flat[i + 5] / 1000 if flat[i + 5] >= 0 else None,
            stored=flat[i + 6],
        )
        for i in range(0, len(flat), 7)
    ]
    return Turned(_texts(lost), bool(more), bool(suspects), leased)


def _append_row(message: NewMessage) -> tuple[Argument, ...]:
    for key in message.lanes:
        if not key or _CONTROL.search(key):
            raise ValueError(f"{key!r} is no lane key: it must be a text without control characters")
    scope, number = message.once or ("", "")
    problem = _problem(message.problem) if message.problem else ""
    return message.id, message.queue, message.stored, scope, number, problem, "\n".join(message.lanes)


def _problem(problem: dict[str, Any]) -> str:
    return json.dumps({"at_ms": round(time.time() * 1000), **problem})


def _texts(values: list[bytes]) -> list[str]:
    return [value.decode() for value in values]
