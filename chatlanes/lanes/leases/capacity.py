"""How many messages a worker asks for, from what its pool runs, what it holds and what it has learned of them.

Promises that a suspect, which has seen workers die, comes to a worker that holds nothing else, and that others wait
for it no longer than that takes. How much is held beyond the free slots, and for how long, prefetch.py decides.
"""

from __future__ import annotations

from chatlanes.lanes.leases.books import Pool
from chatlanes.lanes.leases.ledger import Ledger
from chatlanes.lanes.leases.prefetch import Reserve
from chatlanes.lanes.protocol.replies import Leased


class Room:
    """Of one settler. `pool` is None where no Celery worker runs: nothing is asked for then."""

    def __init__(self, ledger: Ledger) -> None:
        self.pool: Pool | None = None
        self._ledger = ledger
        self._reserve = Reserve()
        self._occupied = 0  # slots that run something else
        self._suspects_wait = False

    @property
    def slots(self) -> int:
        return self.pool.slots() if self.pool else 0

    @property
    def for_lanes(self) -> int:
        """The slots that run nothing else."""
        return max(0, self.slots - self._occupied)

    def size(self, occupied: int = 0) -> int:
        """How many messages to ask for; `occupied` slots run something else."""
        self._occupied = occupied
        held, lost, suspects = self._ledger.counts()
        if self.pool is None or suspects or (self._suspects_wait and held > lost):
            return 0
        slots = self.slots
        if self._suspects_wait:
            return 1 if held < slots else 0
        return max(0, slots + self._reserved(slots) - held - occupied)

    def can_wait(self) -> bool:
        """Whether a turn can wait until less is left here: what is elsewhere waits for longer."""
        if self.pool is None or self._suspects_wait:
            return False
        slots, waiting = self.slots, self._ledger.counts().held - self.for_lanes
        return self._reserve.suffices(slots, self._reserved(slots), waiting)

    @property
    def patience_s(self) -> float:
        """What has to wait here for longer than that is given back."""
        return self._reserve.patience_s

    # -- what it learns

    def turned(self, leased: list[Leased], *, suspects_wait: bool | None, more: bool) -> None:
        """A turn brought these. `suspects_wait`: for a worker that holds nothing; None: as far as is known. `more`: for
        anybody.
        """
        if suspects_wait is not None:
            self._suspects_wait = suspects_wait
        if leased:
            self._reserve.handed_out((each.waited_s for each in leased), more=more)

    def ran(self, run_s: float) -> None:
        """For so long a message had its slot."""
        self._reserve.ran(run_s)

    def was_given_back(self) -> None:
        """Something waited here for longer than expected."""
        if self.pool is not None:
            self._reserve.was_given_back(self.slots)

    def _reserved(self, slots: int) -> int:
        return self._reserve.size(slots, slots * (self.pool.spare if self.pool else 0))
