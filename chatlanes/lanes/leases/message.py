"""A leased message and its tag, `<message id>#<fence>`: the delivery tag in kombu and Celery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Lease = tuple[str, str]  # (message id, fence)

#: A message with this many deaths is handed out alone (turn.lua has the same number).
SUSPECT_AFTER = 2

#: Margin for a report in shared memory to become visible to the parent, which takes microseconds.
REPORT_DELAY_S = 0.005


@dataclass(slots=True)
class LeasedMessage:
    """A message in the in-flight table. No other worker can have it before `deadline_s` (clock.now_s)."""

    id: str
    fence: str
    queue: str
    died: int
    deadline_s: float
    taken_s: float
    claimed_s: float | None = None  # passed to the pool: from then on it may have started
    start_by_s: float | None = None  # sent ahead to a busy process, which does not start it after this time
    started_s: float | None = None
    appended_s: float | None = None  # None: not its first run
    alive_s: float | None = None  # when a worker that died with it was last known to be alive; None: no worker died
    is_lost: bool = False  # another worker may have it; it keeps its slot until the handler ends
    termination_problem: dict[str, Any] | None = None  # set on termination: bury it with this instead of releasing it

    @property
    def tag(self) -> str:
        return tag_of(self.id, self.fence)

    @property
    def is_started(self) -> bool:
        return self.started_s is not None

    @property
    def is_suspect(self) -> bool:
        return self.died >= SUSPECT_AFTER

    def may_start(self, now_s: float) -> bool:
        """True if the process that it was sent ahead to may still start it. The caller has read all reports up to
        `now_s`.
        """
        return self.start_by_s is not None and now_s <= self.start_by_s + REPORT_DELAY_S

    def is_overdue(self, now_s: float, lease_s: float) -> bool:
        """True if it did not start within a lease: Celery drops some messages when a connection fails."""
        since_s = self.taken_s if self.claimed_s is None else self.claimed_s
        return not self.is_lost and not self.is_started and now_s - since_s > lease_s


def tag_of(message_id: str, fence: str) -> str:
    return f"{message_id}#{fence}"


def id_of(tag: str) -> str:
    return tag.rpartition("#")[0]
