"""Heartbeat: renews the leases of all messages in flight.

Guarantees that leases are renewed while their messages are in flight, whatever the main loop does. Does not guarantee
this while C code holds the GIL for longer than a lease: use prefork for such handlers.
"""

from __future__ import annotations

from kombu.log import get_logger

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.protocol.data_loss import Witness
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.runtime import clock, os_threads

logger = get_logger(__name__)

#: When Redis has ended a run, its report arrives within this time.
_END_REPORTED_WITHIN_S = 0.2


class Heartbeat:
    """The heartbeat of one worker."""

    def __init__(self, in_flight: InFlight, store: Store, witness: Witness) -> None:
        self._in_flight = in_flight
        self._store = store
        self._witness = witness
        self.next_renewal_s = 0.0

    def renew(self) -> None:
        """Renew all leases, every third of a lease. Raises RedisError; the renewal is then retried after a sixth of a
        lease, or 1 s if that is less.
        """
        now_s, lease_s = clock.now_s(), self._in_flight.lease_s
        self.next_renewal_s = now_s + min(1.0, lease_s / 6)
        self._renew()
        self.next_renewal_s = now_s + lease_s / 3

    def _renew(self) -> None:
        released = self._in_flight.release_overdue()
        if released:
            logger.warning("lanes: released %d messages that did not start within a lease", released)
        leases = self._in_flight.leases()
        if not leases:
            return
        asked_s = clock.now_s()
        lost = self._store.renew(leases, self._in_flight.lease_ms)
        if lost:
            # The fence of a run that retries, parks, buries or commits becomes old before its report arrives.
            os_threads.Signal().wait(_END_REPORTED_WITHIN_S)
            self._in_flight.read_reports()
        running = self._in_flight.renewed(leases, lost, asked_s)
        if running:
            self._witness.look(self._store)
            is_gone = self._witness.noticed_within(2 * self._in_flight.lease_s)
            why = "Redis has lost it" if is_gone else "another worker can run it"
            logger.warning(
                "lanes: lost the lease of %s: %s; changes by the run on this worker are refused",
                ", ".join(running),
                why,
            )
