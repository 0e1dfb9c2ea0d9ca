"""The background thread of a worker's main process, an OS thread: heartbeat, recoverer and ack flusher.

Guarantees that none of these waits for the main loop, and that each step is retried until Redis answers. Exits the
process if a task has closed the worker's file descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kombu.log import get_logger
from redis import Redis
from redis.exceptions import RedisError

from chatlanes.lanes.leases.flusher import AckFlusher
from chatlanes.lanes.leases.heartbeat import Heartbeat
from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.leases.recoverer import SWEEP_EVERY_S, Recoverer
from chatlanes.lanes.protocol.data_loss import Witness
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.runtime import clock, os_threads

logger = get_logger(__name__)

#: The tick while a message waits to start or an ack is pending, as a fraction of the longest that either may wait.
_BUSY_TICK_FRACTION = 0.5
#: The tick of an idle worker. The in-flight table wakes the thread when it holds more messages than there are slots.
_IDLE_TICK_S = SWEEP_EVERY_S
#: Timeout of the last flush when the worker stops.
_LAST_FLUSH_S = 3.0


class BackgroundThread:
    """One per in-flight table. `connect` makes its Redis client; the thread runs from `start` to `stop`."""

    def __init__(self, in_flight: InFlight, connect: Callable[[], Redis]) -> None:
        self._in_flight = in_flight
        self._wakeups = in_flight.wakeups
        store, witness = Store(connect()), Witness()
        self._flusher = AckFlusher(in_flight, store)
        self._heartbeat = Heartbeat(in_flight, store, witness)
        self._recoverer = Recoverer(in_flight, store, witness)
        self._is_stopping = False
        self._ended = os_threads.lock()
        self._is_redis_down = False
        self.is_running = False

    def start(self) -> None:
        if not self.is_running:
            self.is_running = True
            self._ended.acquire()
            os_threads.start_thread(self._run)

    def stop(self) -> None:
        """Stop the thread after one last flush."""
        if self.is_running:
            self._is_stopping = True
            self._wakeups.background.set()
            self._ended.acquire(timeout=_LAST_FLUSH_S)
            self.is_running = False

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._log_errors(self._tick)
                pause_s = self._pause_s()
                is_idle = pause_s > self._busy_tick_s
                self._wakeups.set_background_idle(is_idle)
                # A message that arrived before `set_background_idle` did not wake this thread.
                if not (is_idle and self._in_flight.has_unclaimed()):
                    self._wakeups.background.wait(pause_s)
            self._in_flight.reports.read()
            self._attempt(self._flusher.flush)
        finally:
            self._ended.release()

    def _log_errors(self, step: Callable[[], None]) -> None:
        """Run a step and log its errors. If this thread died, the worker would keep running and lose every lease."""
        try:
            step()
        except Exception:
            logger.exception("lanes: the background thread failed; it continues")
            self._wakeups.background.wait(_IDLE_TICK_S)

    def _tick(self) -> None:
        in_flight = self._in_flight
        if not in_flight.channel.is_intact():
            # The descriptors may belong to other connections by now. The exit counts as a death: the leases expire.
            logger.critical("lanes: a task has closed this worker's file descriptors; the worker exits")
            os._exit(1)
        now_s = clock.now_s()
        if not self._wakeups.consumers:
            in_flight.reports.read()
        in_flight.release_waiting(longer_than_s=in_flight.capacity.max_wait_s)
        if in_flight.forks and in_flight.pending_acks.has_settles():
            in_flight.channel.wake()  # reports in shared memory do not wake the loop (prefork_child.py)
        if self._flusher.is_due(now_s):
            self._attempt(self._flusher.flush)
        if now_s >= self._heartbeat.next_renewal_s:
            self._attempt(self._heartbeat.renew)
        self._recover(now_s)

    def _recover(self, now_s: float) -> None:
        recoverer = self._recoverer
        if self._wakeups.take_delayed():
            recoverer.sweep_soon()
        if now_s >= recoverer.next_sweep_s:
            if self._in_flight.pending_acks.has_times():  # no fetch carried them
                self._attempt(self._flusher.flush)
            self._attempt(recoverer.sweep)
        if now_s >= recoverer.next_repair_s:
            self._attempt(recoverer.repair)

    def _pause_s(self) -> float:
        waits = self._in_flight.has_unclaimed() or self._in_flight.pending_acks.has_any()
        is_busy = waits or not self._wakeups.consumers
        next_s = min(self._heartbeat.next_renewal_s, self._recoverer.next_sweep_s)
        return min(self._busy_tick_s if is_busy else _IDLE_TICK_S, max(next_s - clock.now_s(), 0.001))

    @property
    def _busy_tick_s(self) -> float:
        return self._in_flight.capacity.max_wait_s * _BUSY_TICK_FRACTION

    def _attempt(self, step: Callable[[], None]) -> None:
        """Run a step. Logs once when Redis stops answering and once when it answers again."""
        try:
            step()
        except (RedisError, OSError) as error:
            if not self._is_redis_down:
                logger.error("lanes: Redis does not answer the lease renewal: %s. Trying again.", error)
            self._is_redis_down = True
            return
        # Only a sweep proves that Redis is back: it always writes, and some servers refuse only writes.
        if self._is_redis_down and step == self._recoverer.sweep:
            logger.info("lanes: Redis answers the lease renewal again")
            self._is_redis_down = False
