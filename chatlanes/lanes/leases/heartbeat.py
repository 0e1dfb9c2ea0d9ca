"""Heartbeat: renews the leases of all messages in flight.

Guarantees that a lease is renewed for as long as its message is in flight, whatever the main loop does. Does not
guarantee it while C code holds the GIL for longer than a lease: with such handlers use prefork.
"""

from __future__ import annotations

from kombu.log import get_logger

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.protocol.data_loss import Witness
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.runtime import clock, os_threads

logger = get_logger(__name__)

#: A run reports its end when Redis has answered it.
_END_REPORTED_WITHIN_S = 0.2


class Heartbeat:
    """Of one worker."""

    def __init__(self, in_flight: InFlight, store: Store, witness: Witness) -> None:
        self._in_flight = in_flight
        self._store = store
        self._witness = witness
        self.next_renewal_s = 0.0

    def renew(self) -> None:
        """Raises RedisError. A renewal that failed is tried again soon: a lease has room for three."""
        now_s, lease_s = clock.now_s(), self._in_flight.lease_s
        self.next_renewal_s = now_s + min(1.0, lease_s / 6)
        self._renew()
        self.next_renewal_s = now_s + lease_s / 3

    def _renew(self) -> None:
        released = self._in_flight.release_overdue()
        if released:
            logger.warning("lanes: gave back %d messages that did not start within a lease", released)
        leases = self._in_flight.leases()
        if not leases:
            return
        asked_s = clock.now_s()
        lost = self._store.renew(leases, self._in_flight.lease_ms)
        if lost:
            # A run that has just been retried, parked, buried or committed has an old fence before it reports that.
            os_threads.Signal().wait(_END_REPORTED_WITHIN_S)
            self._in_flight.read_reports()
        running = self._in_flight.renewed(leases, lost, asked_s)
        if running:
            self._witness.look(self._store)
            is_gone = self._witness.noticed_within(2 * self._in_flight.lease_s)
            why = "Redis has lost it" if is_gone else "it runs again elsewhere"
            logger.warning(
                "lanes: lost the lease of %s: %s, and what still runs here can change nothing", ", ".join(running), why
            )
