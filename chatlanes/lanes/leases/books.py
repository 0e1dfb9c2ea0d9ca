"""The messages in a worker's hands, and the pool they are for: the settler's books, without its lock.

Promises that a message that is lost keeps its slot until its handler ends, and that nobody waits for it. Whoever reads
or writes here holds the settler's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Lease = tuple[str, str]  # (message id, fence)

#: After so many deaths a message is handed out alone (turn.lua has the same number).
SUSPECT_AFTER = 2

#: What one process wrote into memory, another one sees within microseconds.
HEARD_AFTER_S = 0.005


@dataclass(frozen=True)
class Pool:
    """What the settler must know of the pool that runs the messages.

    `slots` gives how many run at once; `forks` says that they run in other processes, which cannot ask the settler;
    `spare` is the most to hold beyond the free slots, for each slot; `claims` says that it claims each message itself,
    when it gives it to one of its processes.
    """

    slots: Callable[[], int]
    forks: bool
    spare: int
    claims: bool = False


@dataclass(slots=True)
class Held:
    """A message in our hands. Until `deadline_s` (clock.now_s) nobody else can have it."""

    id: str
    fence: str
    queue: str
    died: int
    deadline_s: float
    taken_s: float
    claimed_s: float | None = None  # given to the pool for good: from then on it may have started
    start_by_s: float | None = None  # given to a busy process, which does not start it later than this
    started_s: float | None = None
    appended_s: float | None = None  # None: it does not run for the first time
    alive_s: float | None = None  # the last sign of life of a worker that died with it; None: none did
    is_lost: bool = False  # somebody else may have it; its slot is taken until the handler ends
    verdict: dict[str, Any] | None = None  # terminated: buried with this where it would be given back

    @property
    def tag(self) -> str:
        return tag_of(self.id, self.fence)

    @property
    def is_started(self) -> bool:
        return self.started_s is not None

    def may_start(self, now_s: float) -> bool:
        """Unclaimed, it can be taken back only when nobody may start it any more. All that was said by `now_s` is
        known.
        """
        return self.start_by_s is not None and now_s <= self.start_by_s + HEARD_AFTER_S

    @property
    def is_suspect(self) -> bool:
        return self.died >= SUSPECT_AFTER

    def is_forgotten(self, now_s: float, lease_s: float) -> bool:
        """Taken, or given to the pool, a lease ago and never started: Celery drops some when a connection breaks."""
        since_s = self.taken_s if self.claimed_s is None else self.claimed_s
        return not self.is_lost and not self.is_started and now_s - since_s > lease_s


class Books:
    """What is held, by tag, the oldest first; lost ones too. To be read: it changes by these verbs."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self.lost = 0  # nothing dies with them: each has a slot and no lease
        self.suspects = 0  # lost ones apart

    def __len__(self) -> int:
        return len(self.held)

    def tags(self) -> list[str]:
        return list(self.held)

    def enter(self, held: Held) -> None:
        self.held[held.tag] = held
        self.suspects += held.is_suspect

    def valid(self, tag: str) -> Held | None:
        held = self.held.get(tag)
        return None if held is None or held.is_lost else held

    def unclaimed(self) -> list[Held]:
        return [held for held in self.held.values() if held.claimed_s is None and not held.is_lost]

    def forgotten(self, now_s: float, lease_s: float) -> list[Held]:
        return [held for held in self.held.values() if held.is_forgotten(now_s, lease_s)]

    def leases(self) -> list[Lease]:
        return [(held.id, held.fence) for held in self.held.values() if not held.is_lost]

    def forget(self, tag: str) -> Held | None:
        """Out of the books; what it was. None: it was not in them."""
        held = self.held.pop(tag, None)
        if held is not None and held.is_lost:
            self.lost -= 1
        elif held is not None:
            self.suspects -= held.is_suspect
        return held

    def forget_valid(self, tag: str) -> Held | None:
        """As forget, but None also for a lost one: there is nothing to say about it."""
        held = self.forget(tag)
        return None if held is None or held.is_lost else held

    def lose(self, held: Held) -> None:
        """Its handler goes on without a lease, and may never end."""
        if not held.is_lost:
            held.is_lost = True
            self.lost += 1
            self.suspects -= held.is_suspect


def tag_of(message_id: str, fence: str) -> str:
    return f"{message_id}#{fence}"


def id_of(tag: str) -> str:
    return tag.rpartition("#")[0]
