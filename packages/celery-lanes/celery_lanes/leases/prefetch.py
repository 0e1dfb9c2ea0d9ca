"""How many messages a worker fetches: its free slots plus a prefetch, which is estimated from how long runs take.

Guarantees that a suspect (a message with which workers have died) runs on a worker that holds nothing else, and that
other messages wait no longer than this takes. Does not guarantee that a prefetched message starts within
EXPECTED_WAIT_S: the background thread releases it after `max_wait_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from celery_lanes.protocol import Leased

#: About a hundred round trips to Redis; imperceptible to a human.
EXPECTED_WAIT_S = 0.02
#: The longest expected wait, in a backlog. Five fetches a second per worker cost next to nothing per message.
BACKLOG_WAIT_S = 0.2
#: The longest wait, as a multiple of the expected one. It bounds how long a wrong estimate can delay a lane.
MAX_WAIT_FACTOR = 2.5
#: Weight of the newest run in the moving average: the estimate follows a change within about ten runs.
_NEWEST = 0.1


class Counts(NamedTuple):
    """Messages in flight; of those: lost ones, which have no lease, and suspects, which must run alone on a worker."""

    held: int
    lost: int
    suspects: int


@dataclass(frozen=True)
class Pool:
    """The properties of the worker's pool that the in-flight table needs.

    `slots` returns how many messages run at once. `forks`: they run in other processes, which cannot read the table.
    `spare` is the most to prefetch per slot. `claims`: the pool claims each message itself when it sends it to one of
    its processes.
    """

    slots: Callable[[], int]
    forks: bool
    spare: int
    claims: bool = False


class PrefetchEstimator:
    """Estimates the prefetch from how long messages occupy a slot and how long they have waited, in seconds.

    Quick handlers get a prefetch that hides the round trip to Redis. Slow handlers get none, so that no message waits
    behind a slow one while another worker is idle. In a backlog no worker is idle: there the prefetch covers as much
    time as messages have waited, up to BACKLOG_WAIT_S, so that each fetch serves more messages.
    """

    def __init__(self) -> None:
        self._run_s = EXPECTED_WAIT_S * MAX_WAIT_FACTOR  # assume slow handlers until the first runs are measured
        self._wait_s = EXPECTED_WAIT_S

    @property
    def max_wait_s(self) -> float:
        return self._wait_s * MAX_WAIT_FACTOR

    @property
    def is_backlog(self) -> bool:
        return self._wait_s >= BACKLOG_WAIT_S

    def ran(self, run_s: float) -> None:
        """A message occupied its slot for this long."""
        self._run_s += _NEWEST * (run_s - self._run_s)

    def fetched(self, waited_s: Iterable[float], *, more: bool) -> None:
        """`waited_s` is how long each message of a fetch had waited; `more`: Redis has further ready messages."""
        shortest_s = min(waited_s, default=0.0) if more else 0.0
        self._wait_s = min(max(shortest_s, EXPECTED_WAIT_S), BACKLOG_WAIT_S)

    def waited_too_long(self, slots: int) -> None:
        """No slot became free within `max_wait_s`: no prefetch until the next runs are measured."""
        self._run_s = max(self._run_s, 2 * slots * self._wait_s)

    def size(self, slots: int, most: int) -> int:
        """The prefetch: messages beyond the free slots, at most `most`."""
        return min(most, int(slots * self._wait_s / max(self._run_s, 1e-6)))

    def suffices(self, slots: int, size: int, waiting: int) -> bool:
        """True if the next fetch can wait, because `waiting` exceeds half of `size`, or the number of messages that
        start within EXPECTED_WAIT_S. Only in a backlog: otherwise a late settle would delay its lanes.
        """
        return self.is_backlog and waiting > min(size / 2, slots * EXPECTED_WAIT_S / max(self._run_s, 1e-6))


class Capacity:
    """The capacity of one worker. `counts` returns the counts of its in-flight table.

    `pool` is None outside a Celery worker: the capacity is then 0.
    """

    def __init__(self, counts: Callable[[], Counts], estimator: PrefetchEstimator) -> None:
        self.pool: Pool | None = None
        self.estimator = estimator
        self._counts = counts
        self._occupied = 0  # slots that run messages of ordinary queues
        self._ordinary: set[Any] = set()  # requests that have started (worker/request.py)
        self._suspects_wait = False

    def use_pool(self, pool: Pool | None) -> None:
        """Called when the worker has made its pool."""
        self.pool = pool

    @property
    def max_wait_s(self) -> float:
        """A message that waits here longer than this is released."""
        return self.estimator.max_wait_s

    @property
    def slots(self) -> int:
        return self.pool.slots() if self.pool else 0

    @property
    def slots_for_lanes(self) -> int:
        """The slots that are not occupied by messages of ordinary queues."""
        return max(0, self.slots - self._occupied)

    def size(self, occupied: int = 0) -> int:
        """How many messages to fetch. `occupied`: the messages of ordinary queues that are not acknowledged."""
        occupied += self._acknowledged()
        self._occupied = occupied
        held, lost, suspects = self._counts()
        if self.pool is None or suspects or (self._suspects_wait and held > lost):
            return 0
        slots = self.slots
        if self._suspects_wait:
            return 1 if held < slots else 0
        return max(0, slots + self._prefetch(slots) - held - occupied)

    def ordinary_started(self, request: Any) -> None:
        """Called on any thread."""
        self._ordinary.add(request)

    def _acknowledged(self) -> int:
        """How many messages of ordinary queues run although they are acknowledged, as Celery does by default."""
        if not self._ordinary:
            return 0
        for request in list(self._ordinary):
            if not request.is_running:
                self._ordinary.discard(request)
        return sum(request.acknowledged for request in list(self._ordinary))

    def can_wait(self) -> bool:
        """True if the next fetch can wait until fewer messages are left here (PrefetchEstimator.suffices)."""
        if self.pool is None or self._suspects_wait:
            return False
        slots, waiting = self.slots, self._counts().held - self.slots_for_lanes
        return self.estimator.suffices(slots, self._prefetch(slots), waiting)

    def fetched(self, leased: list[Leased], *, suspects_wait: bool | None, more: bool) -> None:
        """Apply the answer of a fetch. `suspects_wait`: a suspect waits for a worker that holds nothing; None: not
        known, keep the last value. `more`: Redis has further ready messages.
        """
        if suspects_wait is not None:
            self._suspects_wait = suspects_wait
        if leased:
            self.estimator.fetched((each.waited_s for each in leased), more=more)

    def waited_too_long(self) -> None:
        """A message waited here longer than `max_wait_s`."""
        if self.pool is not None:
            self.estimator.waited_too_long(self.slots)

    def _prefetch(self, slots: int) -> int:
        return self.estimator.size(slots, slots * (self.pool.spare if self.pool else 0))
