"""What the verbs answer, as values.

Promises that an outcome which is to be expected, also a lost lease, is a value; LeaseLost is raised only where nothing
can go on. Reads the answers that come without their caller waiting for them, or with others: append, turn, begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from chatlanes.lanes.errors import LeaseLost


class Outcome(Enum):
    """What became of a step that needs a lease."""

    DONE = 1
    LOST = 0  # somebody else holds a newer fence; nothing was changed


class History(NamedTuple):
    """Which database it was, and how far it had come: messages ever appended and settled, and pending ones."""

    identity: str
    appended: int
    settled: int
    pending: int


class Loss(NamedTuple):
    """Of all messages ever appended, `first` to `last` are gone; none when `last` is below `first`. `pending` ones
    waited at the last look, and `again` ones that were settled wait again.
    """

    at_ms: int
    first: int
    last: int
    pending: int
    again: int
    is_acknowledged: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did. `pending` is the backlog after it, in the groups of its queues: all that is not buried.

    `held` are those of the added ones that wait for their predecessors, `late` those that lined up behind higher
    numbers; `due_ms` is when the next of all that are held is due, None: none is.
    """

    added: int
    seen: int
    buried: int
    pending: int
    held: int = 0
    late: int = 0
    due_ms: int | None = None
    #: Before it; None: it was appended elsewhere.
    before: History | None = field(default=None, compare=False)


class Leased(NamedTuple):
    """A message handed out. `waited_s`: since it was appended, or replayed; `replayed_s`: None when it never was.

    `alive_s`: since the last sign of life of a worker that died with it, and no run has ended since; None: none did.
    """

    id: str
    fence: str
    queue: str
    died: int
    failed: int
    is_parked: bool  # it was put off before, without a failure
    waited_s: float
    replayed_s: float | None
    alive_s: float | None
    stored: bytes

    @property
    def is_first(self) -> bool:
        """As far as is known it has never run."""
        return not (self.failed or self.died or self.is_parked)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch brought. `more`: ready ones are left; `suspects`: some of them want a worker for themselves, None:
    it asked for nothing, and did not look.
    """

    lost: list[str]
    more: bool
    suspects: bool | None
    leased: list[Leased]


@dataclass(frozen=True, slots=True)
class Read:
    """The lane keys of a message, and the values of keys that were asked for with it."""

    lanes: list[str]
    values: list[bytes | None]


@dataclass(frozen=True, slots=True)
class Swept:
    """`next_ms` is None when nothing is leased or delayed."""

    expired: int
    due: int
    next_ms: int | None
    history: History | None = field(default=None, compare=False)


class Noted(Enum):
    """What a begin found in the journal."""

    BEGUN = "begun"  # nothing: the call is to be made now
    DONE = "done"  # an earlier run made it, with this outcome
    REFUSED = "refused"  # an earlier run was refused with this outcome, and went on after it
    UNCERTAIN = "uncertain"  # an earlier run began it and left no outcome: it may have been made
    DIFFERENT = "different"  # an earlier run made another call here; all from here on was forgotten, this one is begun
    LOST = "lost"  # somebody else holds a newer fence; nothing was changed


class Kind(Enum):
    """What became of a call."""

    DONE = "done"
    REFUSED = "refused"  # it took no effect; counts for a later run if this one goes on after it
    UNDONE = "undone"  # it was not made: as if it had not begun


@dataclass(frozen=True, slots=True)
class Begun:
    """`outcome` is that of DONE and REFUSED; for DIFFERENT it is what the other call was."""

    noted: Noted
    outcome: bytes = b""


_BEGUN = Begun(Noted.BEGUN)
_NO_PAST = (0, 0, 0, -1, -1)


def append_answer(answer: list[Any] | None) -> Appended:
    if answer is None:
        raise LeaseLost("somebody else appends by now; nothing was appended")
    added, seen, buried, pending, held, late, due_ms, before = answer
    due = None if due_ms < 0 else due_ms
    return Appended(added, seen, buried, pending, held, late, due, history_answer(before))


def history_answer(answer: list[Any]) -> History:
    identity, appended, settled, pending = answer
    return History(identity.decode(), appended, settled, pending)


def loss_answer(record: bytes) -> Loss:
    at_ms, first, last, ended, again, acknowledged = map(int, record.split())
    return Loss(at_ms, first, last, max(last - ended, 0), again, bool(acknowledged))


def fetch_answer(answer: list[Any]) -> Fetched:
    lost, more, suspects, *flat = answer
    values = iter(flat)
    leased = []
    for id_, fence, queue, waited, past, stored in zip(*[values] * 6, strict=True):
        died, failed, parked, replayed, alive = map(int, past.split()) if past else _NO_PAST
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
            )
        )
    return Fetched(texts(lost), bool(more), bool(suspects), leased)


def begin_answer(answer: list[bytes]) -> Begun:
    if answer[0] == b"begun":
        return _BEGUN
    noted, *outcome = answer
    return Begun(Noted(noted.decode()), *outcome)


def read_answer(answers: list[Any], fence: str) -> Read | None:
    """None: the lease is over."""
    (state, now, lanes), *values = answers
    if state != b"leased" or now != fence.encode():
        return None
    return Read([key for key in lanes.decode().split("\n") if key], values)


def texts(values: list[bytes]) -> list[str]:
    return [value.decode() for value in values]
