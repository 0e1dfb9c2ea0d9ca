"""How many messages a worker asks for: its free slots, and a prefetch that is learned from how long runs take.

Guarantees that a suspect, a message with which workers have died, goes to a worker that holds nothing else, and that
others wait for it no longer than that takes. A prefetched message is expected to start within EXPECTED_WAIT_S; what
waits for longer than `patience_s` all the same is released by the background thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from chatlanes.lanes.protocol.replies import Leased

#: About a hundred round trips to Redis; a human does not notice it.
EXPECTED_WAIT_S = 0.02
#: The most in a backlog. Half a dozen fetches a second and worker cost each message next to nothing.
BACKLOG_WAIT_S = 0.2
#: In terms of the expected wait. Also the longest that a wrong expectation can hold a lane.
PATIENCE = 2.5
#: Weight of the newest run in the moving average: a change shows after some ten runs.
_NEWEST = 0.1


class Counts(NamedTuple):
    """Messages in flight; of those: lost ones, which need no lease, and suspects, which need a worker of their own."""

    held: int
    lost: int
    suspects: int


@dataclass(frozen=True)
class Pool:
    """The worker's pool, as far as the in-flight table must know it.

    `slots` gives how many messages run at once; `forks`: they run in other processes, which cannot read the table;
    `spare` is the most to hold beyond the free slots, for each slot; `claims`: the pool claims each message itself when
    it gives it to one of its processes.
    """

    slots: Callable[[], int]
    forks: bool
    spare: int
    claims: bool = False


class PrefetchEstimator:
    """Learns from how long messages occupy a slot, and how long they have waited, seconds.

    Quick handlers get a prefetch that hides the round trip to Redis; slow ones get none, so that no message waits
    behind a slow one while another worker is idle. In a backlog no worker is idle: there the prefetch covers as long as
    messages have waited, up to BACKLOG_WAIT_S, so that fetches are fewer and cheaper for each message.
    """

    def __init__(self) -> None:
        self._run_s = EXPECTED_WAIT_S * PATIENCE  # slow until the first runs say otherwise
        self._wait_s = EXPECTED_WAIT_S

    @property
    def patience_s(self) -> float:
        return self._wait_s * PATIENCE

    @property
    def is_backlog(self) -> bool:
        return self._wait_s >= BACKLOG_WAIT_S

    def ran(self, run_s: float) -> None:
        """A message occupied its slot for this long."""
        self._run_s += _NEWEST * (run_s - self._run_s)

    def fetched(self, waited_s: Iterable[float], *, more: bool) -> None:
        """How long each message of a fetch had waited. `more`: others are ready, for which no worker had capacity."""
        shortest_s = min(waited_s, default=0.0) if more else 0.0
        self._wait_s = min(max(shortest_s, EXPECTED_WAIT_S), BACKLOG_WAIT_S)

    def waited_too_long(self, slots: int) -> None:
        """No slot became free within the patience: no prefetch until the next runs say otherwise."""
        self._run_s = max(self._run_s, 2 * slots * self._wait_s)

    def size(self, slots: int, most: int) -> int:
        """Messages beyond the free slots, at most `most`."""
        return min(most, int(slots * self._wait_s / max(self._run_s, 1e-6)))

    def suffices(self, slots: int, size: int, waiting: int) -> bool:
        """True if the next fetch can wait: `waiting` is over half of `size`, or more than starts within
        EXPECTED_WAIT_S. Only in a backlog: elsewhere a late settle would hold up its lanes.
        """
        return self.is_backlog and waiting > min(size / 2, slots * EXPECTED_WAIT_S / max(self._run_s, 1e-6))


class Capacity:
    """The capacity of one worker. `counts` counts its in-flight table.

    `pool` is None where no Celery worker runs: then nothing is asked for.
    """

    def __init__(self, counts: Callable[[], Counts], estimator: PrefetchEstimator) -> None:
        self.pool: Pool | None = None
        self.estimator = estimator
        self._counts = counts
        self._occupied = 0  # slots that run something else
        self._suspects_wait = False

    def use_pool(self, pool: Pool | None) -> None:
        """The worker has made its pool."""
        self.pool = pool

    @property
    def patience_s(self) -> float:
        """A message that waits here for longer than this is released."""
        return self.estimator.patience_s

    @property
    def slots(self) -> int:
        return self.pool.slots() if self.pool else 0

    @property
    def slots_for_lanes(self) -> int:
        """The slots that run nothing else."""
        return max(0, self.slots - self._occupied)

    def size(self, occupied: int = 0) -> int:
        """How many messages to ask for; `occupied` slots run something else."""
        self._occupied = occupied
        held, lost, suspects = self._counts()
        if self.pool is None or suspects or (self._suspects_wait and held > lost):
            return 0
        slots = self.slots
        if self._suspects_wait:
            return 1 if held < slots else 0
        return max(0, slots + self._prefetch(slots) - held - occupied)

    def can_wait(self) -> bool:
        """True if a fetch can wait until fewer messages are left here: messages in Redis wait for longer."""
        if self.pool is None or self._suspects_wait:
            return False
        slots, waiting = self.slots, self._counts().held - self.slots_for_lanes
        return self.estimator.suffices(slots, self._prefetch(slots), waiting)

    def fetched(self, leased: list[Leased], *, suspects_wait: bool | None, more: bool) -> None:
        """The answer of a fetch. `suspects_wait`: a suspect waits for a worker that holds nothing; None: unchanged, as
        far as is known. `more`: others are ready.
        """
        if suspects_wait is not None:
            self._suspects_wait = suspects_wait
        if leased:
            self.estimator.fetched((each.waited_s for each in leased), more=more)

    def waited_too_long(self) -> None:
        """A message waited here for longer than expected."""
        if self.pool is not None:
            self.estimator.waited_too_long(self.slots)

    def _prefetch(self, slots: int) -> int:
        return self.estimator.size(slots, slots * (self.pool.spare if self.pool else 0))
