"""The answers of the verbs, as values.

Guarantees that every expected outcome is a value, including a lost lease; LeaseLost is raised only for an append.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from chatlanes.lanes.errors import LeaseLost


class Outcome(Enum):
    """The outcome of a step that needs a lease."""

    DONE = 1
    LOST = 0  # the fence is old; nothing was changed


class History(NamedTuple):
    """The identity of a database and its totals: messages ever appended and ever settled, and pending messages."""

    identity: str
    appended: int
    settled: int
    pending: int


class Loss(NamedTuple):
    """Of all messages ever appended, `first` to `last` are gone; none if `last` is below `first`. `pending` messages
    were pending when last checked, and `again` settled messages are pending again.
    """

    at_ms: int
    first: int
    last: int
    pending: int
    again: int
    is_acknowledged: bool


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

    @property
    def is_first(self) -> bool:
        """True if no earlier run is known."""
        return not (self.failed or self.died or self.is_parked or self.interrupted)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of a fetch. `more`: ready messages are left; `last_wait`: only messages of the queues that are read
    last are left, for which there was no room; `suspects`: some of them must run alone in a
    worker, None: unknown, because the fetch asked for no messages.
    """

    lost: list[str]
    more: bool
    suspects: bool | None
    leased: list[Leased]
    #: Until the next group or timer is due; None: there is none.
    due_s: float | None = None
    last_wait: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """The lane keys of a message, and the values of the other keys that were read with it."""

    lanes: list[str]
    values: list[bytes | None]


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


class StoredTimer(NamedTuple):
    """A message that joins the end of its lanes when it is due, at `at_ms` since 1970."""

    owner: str
    name: str
    at_ms: int
    id: str
    queue: str
    lanes: list[str]
    stored: bytes


class Noted(Enum):
    """The record of a call that is about to be made, in the journal."""

    BEGUN = "begun"  # nothing: make the call now
    DONE = "done"  # an earlier run made it, with this outcome
    REFUSED = "refused"  # an earlier run was refused with this outcome, and continued after it
    UNCERTAIN = "uncertain"  # an earlier run began it and left no outcome: it may have been made
    DIFFERENT = "different"  # an earlier run made another call here; it and later ones are deleted, this one is begun
    LOST = "lost"  # the fence is old; nothing was changed


class PreviousCall(NamedTuple):
    """A call that an interrupted run, with this fence, has begun. `outcome`: None: unknown, it may have been made."""

    what: str
    outcome: bytes | None
    fence: int
    position: str


class Shielded(Enum):
    """The outcome of `shield`."""

    DONE = 1
    LOST = 0  # the fence is old; nothing was changed
    INTERRUPTED = 2  # a message that arrived while the run was shielded has ended it


class Kind(Enum):
    """The outcome of a call."""

    DONE = "done"
    REFUSED = "refused"  # it took no effect; later runs use this outcome if this run continues after it
    UNDONE = "undone"  # it was not made: its record is removed


@dataclass(frozen=True, slots=True)
class Begun:
    """The answer of `begin`. `outcome`: of a DONE or REFUSED call; for DIFFERENT what the other call was."""

    noted: Noted
    outcome: bytes = b""


_BEGUN = Begun(Noted.BEGUN)
_NO_PAST = (0, 0, 0, -1, -1, 0)


def append_answer(answer: list[Any] | None) -> Appended:
    if answer is None:
        raise LeaseLost("another process appends now; nothing was appended")
    added, seen, buried, pending, held, late, due_ms, before, joined = answer
    due = None if due_ms < 0 else due_ms
    return Appended(added, seen, buried, pending, held, late, due, history_answer(before), joined)


def history_answer(answer: list[Any]) -> History:
    identity, appended, settled, pending = answer
    return History(identity.decode(errors="replace"), appended, settled, pending)


def loss_answer(record: bytes) -> Loss:
    at_ms, first, last, ended, again, acknowledged = map(int, record.split())
    return Loss(at_ms, first, last, max(last - ended, 0), again, bool(acknowledged))


def fetch_answer(answer: list[Any]) -> Fetched:
    lost, more, suspects, due_ms, *flat = answer
    values = iter(flat)
    leased = []
    for id_, fence, queue, waited, past, stored in zip(*[values] * 6, strict=True):
        died, failed, parked, replayed, alive, interrupted = map(int, past.split()) if past else _NO_PAST
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
            )
        )
    due_s = None if due_ms < 0 else due_ms / 1000
    return Fetched(texts(lost), more == 1, bool(suspects), leased, due_s, last_wait=more == 2)


def begin_answer(answer: list[bytes], was: bytes = b"") -> Begun:
    """`was`: what the other call was, if an earlier answer has said so (`forgetting_answer`)."""
    if answer[0] == b"begun":
        return _BEGUN
    noted, *outcome = answer
    return Begun(Noted(noted.decode()), *([was] if was else outcome))


def forgetting_answer(answer: list[bytes]) -> tuple[str, bytes] | None:
    """The cursor with which `begin` is called again, and what the other call was; None: `begin` is done."""
    return (answer[1].decode(), answer[2]) if answer[0] == b"forgetting" else None


def previous_calls_answer(journal: dict[bytes, bytes]) -> list[PreviousCall]:
    """The calls that interrupted runs have left in a journal, by run, series and number."""
    found: list[tuple[int, str, int, PreviousCall]] = []
    for place, noted in journal.items():
        fence, blank, position = place.decode().partition(" ")
        if blank:
            state, _, what, outcome = noted.split(b" ", 3)
            series = position.rstrip("0123456789")
            call = PreviousCall(what.decode(), outcome if state == b"done" else None, int(fence), position)
            found.append((int(fence), series, int(position[len(series) :]), call))
    return [call for *_, call in sorted(found)]


def timers_answer(answer: list[bytes]) -> list[StoredTimer]:
    """The next one first."""
    found = [
        StoredTimer(owner, name, int(at_ms), id_, queue, lanes.split("\n"), stored)
        for *plain, stored in zip(*[iter(answer)] * 7, strict=True)
        for owner, name, at_ms, id_, queue, lanes in [texts(plain)]
    ]
    return sorted(found, key=lambda timer: timer.at_ms)


def read_answer(answers: list[Any], fence: str) -> Read | None:
    """None if the lease is lost."""
    (state, now, lanes), *values = answers
    if state != b"leased" or now != fence.encode():
        return None
    return Read([key for key in lanes.decode().split("\n") if key], values)


def texts(values: list[bytes]) -> list[str]:
    return [value.decode() for value in values]
