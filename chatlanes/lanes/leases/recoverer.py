"""Sweep and repair: expired leases are handed out again, due retries become ready, and inconsistent keys are fixed.

Guarantees that some worker sweeps within a second of the end of a lease, as long as one is running and reaches Redis. A
sweep is one script: a worker that dies in the middle of it leaves nothing half done.
"""

from __future__ import annotations

from math import inf

from kombu.log import get_logger

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.protocol.data_loss import Witness
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.runtime import clock

logger = get_logger(__name__)

#: The longest pause between sweeps, in seconds and as a fraction of a lease. A sweep returns when the next lease
#: expires or the next retry is due, and the next sweep runs then. A lease taken after that sweep expires a whole lease
#: later at the earliest, so this pause misses none. It is well below the third of a lease that the script treats as an
#: outage.
SWEEP_EVERY_S, SWEEP_EVERY_OF_LEASE = 2.5, 1 / 6
#: The pause after a failed sweep.
SWEEP_AGAIN_AFTER_S = 1.0
#: A retry that this worker delayed, a group or a timer may be due before the next sweep. A sweep follows then, at most
#: this often.
_SWEEP_AT_MOST_EVERY_S = 0.02
REPAIR_EVERY_S = 5.0


class Recoverer:
    """The recoverer of one worker."""

    def __init__(self, in_flight: InFlight, store: Store, witness: Witness) -> None:
        self._in_flight = in_flight
        self._store = store
        self._witness = witness
        self._swept_s = 0.0
        self._cursor = "0"
        self._next_sweep_s = 0.0
        self.next_repair_s = 0.0

    @property
    def next_sweep_s(self) -> float:
        due_s = max(self._in_flight.wakeups.next_due_s, self._swept_s + _SWEEP_AT_MOST_EVERY_S)
        return min(self._next_sweep_s, due_s)

    def sweep_soon(self) -> None:
        """Called when this worker has delayed a retry."""
        self._next_sweep_s = min(self._next_sweep_s, self._swept_s + _SWEEP_AT_MOST_EVERY_S)

    def sweep(self) -> None:
        """Hand out expired leases again and make due retries, groups and timers ready. Raises RedisError."""
        self._in_flight.wakeups.next_due_s = inf
        self._swept_s = clock.now_s()
        self._next_sweep_s = self._swept_s + SWEEP_AGAIN_AFTER_S
        known = self._witness.known
        in_flight = self._in_flight
        swept = self._store.sweep(in_flight.lease_ms, in_flight.holder, in_flight.capacity.slots)
        if swept.history is not None:
            self._witness.compare(self._store, known, swept.history)
        if swept.set_back_ms:
            logger.warning("lanes: the clock of Redis was set back by %.1f s", swept.set_back_ms / 1000)
        if swept.expired:
            logger.warning("lanes: %d leases expired; their messages are handed out again", swept.expired)
        next_s = min(SWEEP_EVERY_S, in_flight.lease_s * SWEEP_EVERY_OF_LEASE)
        if swept.next_ms is not None:
            next_s = min(next_s, max(swept.next_ms, 10) / 1000)
        self._next_sweep_s = clock.now_s() + next_s

    def repair(self) -> None:
        """Repair the next portion of the keys. Raises RedisError."""
        self.next_repair_s = clock.now_s() + REPAIR_EVERY_S
        self._cursor, repaired = self._store.repair(self._cursor, self._in_flight.lease_ms)
        if repaired:
            logger.warning("lanes: repaired %d keys that did not agree with their messages", repaired)
