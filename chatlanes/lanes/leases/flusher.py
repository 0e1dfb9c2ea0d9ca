"""Sends the pending acks that fetches do not carry, and the others if no fetch carries them in time.

Guarantees that an ack stays pending if sending it failed. Sending an ack twice is harmless: the second has an old
fence and is refused.
"""

from __future__ import annotations

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.leases.pending_acks import AckBatch
from chatlanes.lanes.protocol.store import Store


class AckFlusher:
    """The flusher of one in-flight table."""

    def __init__(self, in_flight: InFlight, store: Store) -> None:
        self._in_flight = in_flight
        self._store = store
        self._settles_since_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """True if acks must be sent now. Settles wait for a fetch, unless the loop is blocked (solo); other acks do not
        wait.
        """
        acks, wakeups = self._in_flight.pending_acks, self._in_flight.wakeups
        if not acks.has_any():
            self._settles_since_s = None
            return False
        if self._settles_since_s is None:
            self._settles_since_s = now_s
        waited_s = now_s - max(self._settles_since_s, wakeups.last_fetch_s)
        max_wait_s = self._in_flight.capacity.max_wait_s
        return acks.has_urgent() or not wakeups.consumers or waited_s >= max_wait_s

    def flush(self) -> None:
        """Send all pending acks. Raises RedisError; all of them then stay pending."""
        acks = self._in_flight.pending_acks
        batch = acks.start_flush()
        self._settles_since_s = None
        try:
            self._send(batch)
        except BaseException:
            acks.flush_failed()
            raise
        acks.flush_answered()

    def _send(self, batch: AckBatch) -> None:
        if batch.settles or batch.times:
            self._store.turn(
                [],
                holder=self._in_flight.holder,
                lease_ms=self._in_flight.lease_ms,
                room=0,
                settles=list(batch.settles),
                times=batch.times,
            )
        for died in (False, True):
            leases = [(message_id, fence) for message_id, fence, has_died in batch.releases if has_died is died]
            if leases:
                self._store.release(leases, died=died)
        for message_id, fence, problem in batch.burials:
            self._store.bury(message_id, fence, problem)
        for message_id, fence, delay_ms, problem in batch.retries:
            self._store.retry(message_id, fence, delay_ms=delay_ms, problem=problem)
