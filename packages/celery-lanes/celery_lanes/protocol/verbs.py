"""The verbs of a message, from its append to its end: for each its command, and the value that its answer becomes.

Guarantees that each verb is one atomic step, that a step with an old fence changes nothing, and that every expected
outcome is a value, including a lost lease; LeaseLost is raised only for an append.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from celery_lanes.errors import LeaseLost
from celery_lanes.protocol import keys
from celery_lanes.protocol.envelope import split
from celery_lanes.protocol.messages import (
    Guard,
    NewMessage,
    Write,
    append_row,
    lines,
    portions,
    problem_json,
    staged_row,
    write_row,
)
from celery_lanes.protocol.scripts import Argument, Command, plain, verb

#: Deaths before a message is buried, unless the app configures another number.
MAX_DEATHS = 5
#: A script that processes more in one step would delay other clients.
SWEEP_LIMIT = 64
REPAIR_LIMIT = 200
#: The answer of a commit whose writes are done by finish.lua.
UNFINISHED = 2

_CONTROL_OR_BLANK = re.compile(r"[\x00-\x20\x7f]")
_POSITION = re.compile(r"(?:[^\x00-\x20\x7f]*[^\x00-\x20\x7f0-9])?[1-9][0-9]{0,14}")


def _texts(values: list[bytes]) -> list[str]:
    return [value.decode() for value in values]


class Outcome(Enum):
    """The outcome of a step that needs a lease."""

    DONE = 1
    LOST = 0  # the fence is old; nothing was changed


# -- the history of the database


class History(NamedTuple):
    """The identity of a database and its totals: messages ever appended and ever settled, and pending messages."""

    identity: str
    appended: int
    settled: int
    pending: int


def history_of(answer: list[Any]) -> History:
    identity, appended, settled, pending = answer
    return History(identity.decode(errors="replace"), appended, settled, pending)


# -- appending


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of an append. `pending` is the backlog after it, in the groups of its queues: all messages not buried.

    Of the added messages, `held` are held because a lower number is missing. `late` messages joined their lanes behind
    higher numbers. `due_ms` is the time until the next held message is due; None: no message is held.
    """

    added: int
    seen: int
    buried: int
    pending: int
    held: int = 0
    late: int = 0
    due_ms: int | None = None
    #: The history before the append; None: the lanes did not do the append.
    before: History | None = field(default=None, compare=False)
    #: How many of the added messages have no record: they joined groups, or follow a run with their id. The totals do
    #: not count them.
    joined: int = field(default=0, compare=False)
    #: Messages that were over their rates, and were not added.
    over_rate: int = 0


def append(messages: Iterable[NewMessage], guard: Guard | None = None, hold_ms: int = 0) -> Command[Appended]:
    """Appends a whole batch, all or nothing. With `hold_ms` the messages join their lanes in the order of their
    numbers, and a message is held for at most that long while a lower number is missing.

    Raises LeaseLost if the guard has another fence, and PublishRefused for a message that a worker could not lease.
    """
    guards, fence, sets = ([guard.key], guard.fence, guard.sets) if guard else ([], "", {})
    return verb(
        "append",
        _appended,
        keys=guards,
        group=map(append_row, messages),
        seen_ttl_s=keys.SEEN_TTL_S,
        seen_block=keys.SEEN_BLOCK,
        fence=fence,
        sets=lines(sets),
        hold_ms=hold_ms,
    )


def _appended(answer: list[Any] | None) -> Appended:
    if answer is None:
        raise LeaseLost("another process appends now; nothing was appended")
    added, seen, buried, pending, held, late, due_ms, before, joined, over_rate = answer
    due = None if due_ms < 0 else due_ms
    return Appended(added, seen, buried, pending, held, late, due, history_of(before), joined, over_rate)


# -- leases


class Leased(NamedTuple):
    """A message handed out. `waited_s`: since its append or replay; `replayed_s`: since its replay, None: never.

    `alive_s`: since the last sign of life of a worker that died with it; None: none died, or a run has ended since.
    """

    id: str
    fence: str
    queue: str
    died: int
    failed: int
    is_parked: bool  # it was postponed before, without a failure
    waited_s: float
    replayed_s: float | None
    alive_s: float | None
    stored: bytes
    interrupted: int = 0  # how often a newer message has ended its run
    is_stopped: bool = False
    note: str = ""  # of its first lane
    is_marked: bool = False  # it was over its rate (Rate)
    is_gathered: bool = False  # messages behind it became part of it

    @property
    def is_first(self) -> bool:
        """True if no earlier run is known."""
        return not (self.failed or self.died or self.is_parked or self.interrupted or self.is_stopped)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch. `more`: ready messages are left; `last_wait`: only messages of the queues that are read
    last are left, because the worker had no room for them; `suspects`: some of them must run alone in a
    worker, None: unknown, because the fetch asked for no messages.
    """

    lost: list[str]
    more: bool
    suspects: bool | None
    leased: list[Leased]
    #: Until the next group or timer is due; None: there is none.
    due_s: float | None = None
    last_wait: bool = False


def turn(
    queues: Sequence[str],
    *,
    holder: str,
    lease_ms: int,
    room: int,
    holding: int = 0,
    settles: Sequence[tuple[str, str]] = (),
    max_deaths: int = MAX_DEATHS,
    first: int = 0,
    last: int = 0,
    last_room: int = 0,
    times: Mapping[str, int] | None = None,
) -> Command[Fetched]:
    """Settles (id, fence) pairs and leases up to `room` ready messages, in one step (lua/turn.lua). Examines at most 64
    ids more than fit. `times` is added to the counters in Redis (pending_acks.py).
    """
    return verb(
        "turn",
        _fetched,
        keys=queues,
        group=settles,
        holder=holder,
        lease_ms=lease_ms,
        room=room,
        budget=room + 64,
        max_deaths=max_deaths,
        holding=holding,
        first=first,
        last=last,
        last_room=last_room,
        times=lines(times or {}),
        settles=len(settles),
    )


_NO_PAST = (0, 0, 0, -1, -1, 0, 0, 0, 0)


def _fetched(answer: list[Any]) -> Fetched:
    lost, more, suspects, due_ms, *flat = answer
    values = iter(flat)
    leased = []
    for id_, fence, queue, waited, past, stored in zip(*[values] * 6, strict=True):
        known, note = past.split(b" ", 9), ""
        if len(known) == 10:
            note = known.pop().decode()
        died, failed, parked, replayed, alive, interrupted, stopped, marked, gathered = (
            map(int, known) if past else _NO_PAST
        )
        leased.append(
            Leased(
                id_.decode(),
                fence.decode(),
                queue.decode(),
                died,
                failed,
                parked == 1,
                waited / 1000,
                replayed / 1000 if replayed >= 0 else None,
                alive / 1000 if alive >= 0 else None,
                stored,
                interrupted,
                stopped == 1,
                note,
                marked == 1,
                gathered == 1,
            )
        )
    due_s = None if due_ms < 0 else due_ms / 1000
    return Fetched(_texts(lost), more == 1, bool(suspects), leased, due_s, last_wait=more == 2)


def renew(leases: Iterable[tuple[str, str]], lease_ms: int) -> Command[list[str]]:
    """Extends leases; returns the ids whose lease was lost."""
    return verb("renew", _texts, group=leases, lease_ms=lease_ms)


def release(leases: Iterable[tuple[str, str]], *, died: bool = False, started: bool = True) -> Command[list[str]]:
    """Gives messages back untouched; returns the ids whose lease was lost. One that was not `started` does not count
    for the rates of its lanes.
    """
    how = 1 if died else 0 if started else 2
    return verb("release", _texts, group=[(id_, fence, how) for id_, fence in leases])


def reconcile(holder: str, held: Iterable[str]) -> Command[int]:
    """Releases messages that are leased to `holder` but not in `held`; returns how many were released."""
    return verb("reconcile", int, group=[(id_,) for id_ in held], holder=holder)


def holds(message_id: str, fence: str) -> Command[bool]:
    """True if this fence still holds the lease of the message."""
    asked: list[Argument] = ["HMGET", keys.message(message_id), "state", "fence"]
    return Command(None, asked, lambda found: found == [b"leased", fence.encode()])


def times_interrupted(message_id: str) -> Command[int | None]:
    """How often newer messages have ended runs of this message; None if it has been settled."""
    asked: list[Argument] = ["HMGET", keys.message(message_id), "state", "interrupted"]
    return Command(None, asked, lambda found: int(found[1] or 0) if found[0] else None)


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep. `next_ms`: until the next message is due; None: none is leased or delayed. `set_back_ms`:
    by how much the clock of Redis was set back since the last sweep, at least.
    """

    expired: int
    due: int
    next_ms: int | None
    history: History | None = field(default=None, compare=False)
    set_back_ms: int = 0
    #: Due timers that could not be read, and were postponed, and the version of the texts of one of them (scripts.py).
    postponed: int = 0
    unknown_version: int = 0


def sweep(lease_ms: int, holder: str = "", slots: int = 0) -> Command[Swept]:
    """Takes back expired leases and makes due retries ready: at most SWEEP_LIMIT of each (lua/sweep.lua)."""
    return verb("sweep", _swept, lease_ms=lease_ms, limit=SWEEP_LIMIT, holder=holder, slots=slots)


def _swept(answer: list[Any]) -> Swept:
    expired, due, next_ms, history, *rest = answer
    return Swept(expired, due, None if next_ms < 0 else next_ms, history_of(history), *rest)


def repair(cursor: str, lease_ms: int) -> Command[tuple[str, int]]:
    """Repairs the keys of a few messages; returns the next cursor ("0" at the end) and the number of repairs."""
    return verb(
        "repair",
        lambda answer: (answer[0].decode(), answer[1]),
        cursor=cursor,
        limit=REPAIR_LIMIT,
        lease_ms=lease_ms,
    )


# -- ends of a run


def retry(message_id: str, fence: str, *, delay_ms: int, problem: dict[str, Any]) -> Command[Outcome]:
    """Gives a message back after a failure; its lanes wait until it is due."""
    return verb("retry", Outcome, id=message_id, fence=fence, delay_ms=delay_ms, problem=problem_json(problem))


def park(message_id: str, fence: str, *, delay_ms: int, kind: str = "", reason: str = "") -> Command[Outcome]:
    """Postpones a message that has not failed; its lanes wait until it is due. Counted under `kind`, a word."""
    return verb("park", Outcome, id=message_id, fence=fence, delay_ms=delay_ms, kind=kind, reason=reason)


def bury(message_id: str, fence: str, problem: dict[str, Any]) -> Command[Outcome]:
    """Moves a message to the dead letters; its lanes continue."""
    return verb("bury", Outcome, id=message_id, fence=fence, problem=problem_json(problem))


def commit(message_id: str, fence: str, writes: Iterable[Write], *, skipped: bool = False) -> list[Command[int]]:
    """Does the writes and settles, to be sent in this order: one command, or several that store the writes of a large
    commit before the one that decides. The last answer is UNFINISHED if `finish` must be called.
    """
    rows, commands, staged = list(map(write_row, writes)), list[Command[int]](), 0
    each = list(portions(rows))
    for portion in each if len(each) > 1 else []:
        packed = [(staged_row(row),) for row in portion]
        commands.append(verb("stage", int, group=packed, id=message_id, fence=fence, before=staged))
        staged += len(portion)
    group = () if staged else rows
    last = verb("commit", int, group=group, id=message_id, fence=fence, skipped=int(skipped), staged=staged)
    return [*commands, last]


def finish(message_id: str) -> Command[bool]:
    """Does the next writes of a large commit that was decided. False: none are left."""
    return verb("finish", bool, id=message_id)


# -- calls of a run


class Noted(Enum):
    """The record of a call that is about to be made, in the journal."""

    BEGUN = "begun"  # nothing: make the call now
    DONE = "done"  # an earlier run made it, with this outcome
    REFUSED = "refused"  # an earlier run was refused with this outcome, and continued after it
    UNCERTAIN = "uncertain"  # an earlier run began it and left no outcome: it may have been made
    DIFFERENT = "different"  # an earlier run made another call here; it and later ones are deleted, this one is begun
    LOST = "lost"  # the fence is old; nothing was changed


@dataclass(frozen=True, slots=True)
class Begun:
    """The answer of `begin`. `outcome`: of a DONE or REFUSED call; for DIFFERENT what the other call was."""

    noted: Noted
    outcome: bytes = b""


class Forgetting(NamedTuple):
    """The answer of `begin` while an earlier run's calls are deleted: it is called again with the `cursor`. `was`: what
    the other call was.
    """

    cursor: str
    was: bytes


_BEGUN = Begun(Noted.BEGUN)


def begin(
    message_id: str, fence: str, *, lease_ms: int, position: str, what: str, cursor: str = "0"
) -> Command[Begun | Forgetting]:
    """Records that a call is about to be made, or returns its outcome in an earlier run. Extends the lease.

    Raises ValueError if the position does not end in a number, or `what` or the position contains a blank.
    """
    if not _POSITION.fullmatch(position) or not what or _CONTROL_OR_BLANK.search(what):
        raise ValueError(f"invalid call {position!r}, {what!r}: use <series><number> as position, and no blanks")
    return verb(
        "begin", _begun, id=message_id, fence=fence, lease_ms=lease_ms, position=position, what=what, cursor=cursor
    )


def _begun(answer: list[bytes]) -> Begun | Forgetting:
    if answer[0] == b"begun":
        return _BEGUN
    if answer[0] == b"forgetting":
        return Forgetting(answer[1].decode(), answer[2])
    noted, *outcome = answer
    return Begun(Noted(noted.decode()), *outcome)


class Kind(Enum):
    """The outcome of a call."""

    DONE = "done"
    REFUSED = "refused"  # it took no effect; later runs use this outcome if this run continues after it
    UNDONE = "undone"  # it was not made: its record is removed


def end(message_id: str, fence: str, *, position: str, what: str, kind: Kind, outcome: bytes = b"") -> Command[Outcome]:
    """Records the outcome of a call that was begun."""
    return verb(
        "end", Outcome, id=message_id, fence=fence, position=position, what=what, kind=kind.value, outcome=outcome
    )


class PreviousCall(NamedTuple):
    """A call that an interrupted run, with this fence, has begun. `outcome`: None: unknown, it may have been made."""

    what: str
    outcome: bytes | None
    fence: int
    position: str


def previous_calls(message_id: str) -> Command[list[PreviousCall]]:
    """The calls that interrupted runs have left in a journal, by run, series and number."""
    return Command(None, ["HGETALL", keys.journal(message_id)], _previous_calls)


def _previous_calls(journal: dict[bytes, bytes]) -> list[PreviousCall]:
    found: list[tuple[int, str, int, PreviousCall]] = []
    for place, noted in journal.items():
        fence, blank, position = place.decode().partition(" ")
        if blank:
            state, _, what, outcome = noted.split(b" ", 3)
            series = position.rstrip("0123456789")
            call = PreviousCall(what.decode(), outcome if state == b"done" else None, int(fence), position)
            found.append((int(fence), series, int(position[len(series) :]), call))
    return [call for *_, call in sorted(found)]


class Shielded(Enum):
    """The outcome of `shield`."""

    DONE = 1
    LOST = 0  # the fence is old; nothing was changed
    INTERRUPTED = 2  # a message that arrived while the run was shielded has ended it


def shield(message_id: str, fence: str, *, shielded: bool) -> Command[Shielded]:
    """Keeps a run from being interrupted, or allows it again."""
    return verb("shield", Shielded, id=message_id, fence=fence, shielded=int(shielded))


def close_group(message_id: str, fence: str) -> Command[bool]:
    """Ends the collecting of a group: no message joins or interrupts this run any more. False: the lease was lost."""
    return verb("close", bool, id=message_id, fence=fence)


class Taken(NamedTuple):
    """The answer of `take`. `places`: of all messages that the runs of a message have taken, in order. `bodies`: stored
    forms, the last ones of which are those that the caller did not know. `more`: another one can be taken.
    """

    places: list[int]
    bodies: list[bytes]
    more: bool


def take(message_id: str, fence: str, *, known: int, place: int | None) -> Command[Taken | None]:
    """Lets a run take the next message of its group that follows it. `known`: how many were taken, as the caller knows;
    if there are more, returns those and takes none. `place`: None: takes none. None: the lease was lost.
    """

    def read(answer: list[Any] | None) -> Taken | None:
        if answer is None:
            return None
        taken, bodies, more = answer
        return Taken([place for place, *_ in json.loads(taken)], split(bodies) if bodies else [], more == 1)

    return verb("take", read, id=message_id, fence=fence, known=known, place="" if place is None else place)


def leave(message_id: str, fence: str, *, kept: int) -> Command[Outcome]:
    """Returns the messages that the runs of a message have taken, except the first `kept`: they follow it again."""
    return verb("leave", Outcome, id=message_id, fence=fence, kept=kept)


def gather(message_id: str, fence: str, followers: Iterable[str]) -> Command[int | None]:
    """Makes messages that follow a leased one in all its lanes part of it, before its run begins. Returns how many, up
    to the first one that cannot be; None: the lease was lost, and nothing was changed.
    """

    def read(answer: int) -> int | None:
        return None if answer < 0 else answer

    return verb("gather", read, id=message_id, fence=fence, group=[(each,) for each in followers])


# -- reads


@dataclass(frozen=True, slots=True)
class Read:
    """The lane keys of a message, and the values of the other keys that were read with it."""

    lanes: list[str]
    values: list[bytes | None]


def read(message_id: str, names: Iterable[str]) -> list[Command[Any]]:
    """Reads its lease and lane keys, and other keys."""
    return [
        plain("HMGET", keys.message(message_id), "state", "fence", "lanes"),
        *[plain("GET", name) for name in names],
    ]


def read_values(answers: list[Any], fence: str) -> Read | None:
    """None if the lease is lost."""
    (state, now, lanes), *values = answers
    if state != b"leased" or now != fence.encode():
        return None
    return Read(keys.lane_keys(lanes.decode()), values)
