"""What a settler's books consist of: the pool it fills, the messages it holds, and what Redis has not been told yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Lease = tuple[str, str]  # (message id, fence)

#: After so many deaths a message is handed out alone (turn.lua has the same number).
SUSPECT_AFTER = 2


@dataclass(frozen=True)
class Pool:
    """What the settler must know of the pool that runs the messages.

    `slots` gives how many run at once; `forks` says that they run in other processes, which cannot ask the settler;
    `spare` is the most to hold beyond the free slots, for each slot.
    """

    slots: Callable[[], int]
    forks: bool
    spare: int


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
    is_started: bool = False
    is_lost: bool = False  # somebody else may have it; its slot is taken until the handler ends

    @property
    def tag(self) -> str:
        return tag_of(self.id, self.fence)


@dataclass
class Outbox:
    """What Redis has not been told yet."""

    settles: deque[Lease] = field(default_factory=deque)
    releases: deque[tuple[str, str, bool]] = field(default_factory=deque)  # with: its process died
    burials: deque[tuple[str, str, dict[str, Any]]] = field(default_factory=deque)
    retries: deque[tuple[str, str, int, dict[str, Any]]] = field(default_factory=deque)  # with: delay, ms


def tag_of(message_id: str, fence: str) -> str:
    return f"{message_id}#{fence}"
