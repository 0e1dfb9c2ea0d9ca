"""The lease keeper: a thread of the worker's main process that renews leases, sweeps, and says what no turn says.

Promises that a lease is renewed for as long as its message is held, whatever the main loop does, and that what could
not be told to Redis is told again until it can. Does not promise so while C code holds the GIL for longer than a lease:
with such handlers use prefork. Ends a worker whose files a task has closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kombu.log import get_logger
from redis import Redis
from redis.exceptions import RedisError

from chatlanes.lanes.leases.pending_acks import Untold
from chatlanes.lanes.leases.settler import Settler
from chatlanes.lanes.protocol.data_loss import Witness
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.runtime import clock, os_threads

logger = get_logger(__name__)

#: A sweep tells when the next lease runs out or the next retry is due, and one follows at that time. What others lease
#: after it runs out a whole lease later at the earliest, so looking this often, in seconds and in terms of a lease,
#: misses nothing; and it is well below the third of a lease that the script takes for an outage.
SWEEP_EVERY_S, SWEEP_EVERY_OF_LEASE = 2.5, 1 / 6
#: After one that failed.
SWEEP_AGAIN_AFTER_S = 1.0
#: A retry may be due sooner than the next sweep: whoever hears of one sweeps, and learns when the first one is due.
_SWEEP_AT_MOST_EVERY_S = 0.02
REPAIR_EVERY_S = 5.0
#: While something is held that has not started, or is done and not told, in terms of what may wait so for how long.
_BUSY_TICK_OF_PATIENCE = 0.5
#: The settler wakes it when there is more than slots. An idle worker looks no more often than it sweeps.
_IDLE_TICK_S = SWEEP_EVERY_S
#: A run says that it has ended when Redis has answered it.
_ENDS_HEARD_WITHIN_S = 0.2
#: How long the last words may take when the worker stops and Redis does not answer.
_LAST_WORDS_S = 3.0


class LeaseKeeper:
    """One for each settler. `connect` makes its client; the thread starts with `start` and ends with `stop`."""

    def __init__(self, settler: Settler, connect: Callable[[], Redis]) -> None:
        self._settler = settler
        self._store = Store(connect())
        self._witness = Witness()
        self._stopping = False
        self._ended = os_threads.lock()
        self._next_renewal_s = 0.0
        self._next_sweep_s = self._swept_s = 0.0
        self._next_repair_s = 0.0
        self._settles_since_s: float | None = None
        self._cursor = "0"
        self._is_away = False
        self.is_running = False

    def start(self) -> None:
        if not self.is_running:
            self.is_running = True
            self._ended.acquire()
            os_threads.start_thread(self._run)

    def stop(self) -> None:
        """End the thread after one last try to tell Redis everything."""
        if self.is_running:
            self._stopping = True
            self._settler.outbox_signal.set()
            self._ended.acquire(timeout=_LAST_WORDS_S)
            self.is_running = False

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._survive(self._tick)
                pause_s = self._pause_s()
                self._settler.keeper_rests = pause_s > self._busy_tick_s
                # What began to wait since was told of before it could know that somebody rests.
                if not (self._settler.keeper_rests and self._settler.ledger.has_unclaimed()):
                    self._settler.outbox_signal.wait(pause_s)
            self._settler.read_handoff()
            self._attempt(self._tell)
        finally:
            self._ended.release()

    def _survive(self, step: Callable[[], None]) -> None:
        """Without its keeper a worker would go on and lose every lease: whatever goes wrong, the next round comes."""
        try:
            step()
        except Exception:
            logger.exception("lanes: the lease keeper stumbled")
            self._settler.outbox_signal.wait(_IDLE_TICK_S)

    def _tick(self) -> None:
        if not self._settler.handoff.is_intact():
            logger.critical("lanes: a task has closed this worker's files, and it cannot go on: it ends")
            os._exit(1)
        now_s = clock.now_s()
        if not self._settler.consumers:
            self._settler.read_handoff()
        self._settler.give_back_waiting(longer_than_s=self._settler.room.patience_s)
        if self._settler.forks and self._settler.ledger.has_settles():
            self._settler.handoff.wake()  # a child has reported and not woken the loop (prefork_child.py)
        if self._must_tell(now_s):
            self._attempt(self._tell)
        if now_s >= self._next_renewal_s:
            # A renewal that fails is tried again soon: a lease has room for three.
            renewed = self._attempt(self._renew)
            self._next_renewal_s = now_s + (
                self._settler.lease_s / 3 if renewed else min(1.0, self._settler.lease_s / 6)
            )
        if self._settler.heard_of_delays():
            self._next_sweep_s = min(self._next_sweep_s, self._swept_s + _SWEEP_AT_MOST_EVERY_S)
        if now_s >= self._next_sweep_s:
            self._swept_s, self._next_sweep_s = now_s, now_s + SWEEP_AGAIN_AFTER_S
            if self._settler.ledger.has_times():  # no turn took them along
                self._attempt(self._tell)
            self._attempt(self._sweep)
        if now_s >= self._next_repair_s:
            self._next_repair_s = now_s + REPAIR_EVERY_S
            self._attempt(self._repair)

    def _pause_s(self) -> float:
        ledger = self._settler.ledger
        waits = ledger.has_unclaimed() or ledger.has_untold()
        busy = waits or not self._settler.consumers
        next_s = min(self._next_renewal_s, self._next_sweep_s)
        return min(self._busy_tick_s if busy else _IDLE_TICK_S, max(next_s - clock.now_s(), 0.001))

    @property
    def _busy_tick_s(self) -> float:
        return self._settler.room.patience_s * _BUSY_TICK_OF_PATIENCE

    def _must_tell(self, now_s: float) -> bool:
        """Settles wait for a turn to take them along, unless the loop is held up (solo); nothing else does."""
        if not self._settler.ledger.has_untold():
            self._settles_since_s = None
            return False
        if self._settles_since_s is None:
            self._settles_since_s = now_s
        waited_s = now_s - max(self._settles_since_s, self._settler.turned_s)
        return (
            self._settler.ledger.has_urgent()
            or not self._settler.consumers
            or waited_s >= self._settler.room.patience_s
        )

    def _tell(self) -> None:
        untold = self._settler.ledger.to_keeper()
        self._settles_since_s = None
        try:
            self._send(untold)
            self._settler.ledger.told()
        except BaseException:
            self._settler.ledger.put_back()  # saying it twice is harmless: the fence is old by then
            raise

    def _send(self, untold: Untold) -> None:
        if untold.settles or untold.times:
            self._store.turn(
                [],
                holder=self._settler.holder,
                lease_ms=self._settler.lease_ms,
                room=0,
                settles=list(untold.settles),
                times=untold.times,
            )
        for died in (False, True):
            leases = [(message_id, fence) for message_id, fence, has_died in untold.releases if has_died is died]
            if leases:
                self._store.release(leases, died=died)
        for message_id, fence, problem in untold.burials:
            self._store.bury(message_id, fence, problem)
        for message_id, fence, delay_ms, problem in untold.retries:
            self._store.retry(message_id, fence, delay_ms=delay_ms, problem=problem)

    def _renew(self) -> None:
        forgotten = self._settler.give_back_forgotten()
        if forgotten:
            logger.warning("lanes: gave back %d messages that did not start within a lease", forgotten)
        leases = self._settler.ledger.leases()
        if not leases:
            return
        asked_s = clock.now_s()
        lost = self._store.renew(leases, self._settler.lease_ms)
        if lost:
            # A run that is just retried, parked, buried or committed has an old fence, too, before it can say so.
            os_threads.Signal().wait(_ENDS_HEARD_WITHIN_S)
            self._settler.hear_of_ends()
        running = self._settler.ledger.renewed(leases, lost, asked_s)
        if running:
            self._witness.look(self._store)
            is_gone = self._witness.noticed_within(2 * self._settler.lease_s)
            why = "Redis has lost it" if is_gone else "it runs again elsewhere"
            logger.warning(
                "lanes: lost the lease of %s: %s, and what still runs here can change nothing", ", ".join(running), why
            )

    def _sweep(self) -> None:
        known = self._witness.known
        swept = self._store.sweep(self._settler.lease_ms, self._settler.holder, self._settler.room.slots)
        if swept.history is not None:
            self._witness.compare(self._store, known, swept.history)
        if swept.expired:
            logger.warning("lanes: %d leases ran out; their messages are handed out again", swept.expired)
        next_s = min(SWEEP_EVERY_S, self._settler.lease_s * SWEEP_EVERY_OF_LEASE)
        if swept.next_ms is not None:
            next_s = min(next_s, max(swept.next_ms, 10) / 1000)
        self._next_sweep_s = clock.now_s() + next_s

    def _repair(self) -> None:
        self._cursor, mended = self._store.repair(self._cursor, self._settler.lease_ms)
        if mended:
            logger.warning("lanes: mended %d keys that did not agree with their messages", mended)

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Run a step; one log line when Redis goes away and one when it is back."""
        try:
            step()
        except (RedisError, OSError) as error:
            if not self._is_away:
                logger.error("lanes: Redis does not answer the lease keeper: %s. Trying again.", error)
            self._is_away = True
            return False
        if self._is_away and step == self._sweep:  # which always writes; some servers refuse only that
            logger.info("lanes: Redis answers the lease keeper again")
            self._is_away = False
        return True
