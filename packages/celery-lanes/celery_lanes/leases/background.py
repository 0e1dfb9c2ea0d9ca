"""The background thread of a worker's main process, an OS thread: heartbeat, recoverer and ack flusher.

Guarantees that none of these waits for the main loop, and that each step is retried until Redis answers: leases are
renewed while their messages are in flight, and some worker sweeps within a second of the end of a lease, as long as one
is running and reaches Redis. A sweep is one script: a worker that dies in the middle of it leaves nothing half done.
Does not guarantee this while C code holds the GIL for longer than a lease: use prefork for such handlers. Exits the
process if a task has closed the worker's file descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import inf
from typing import Any

from kombu import Connection
from kombu.log import get_logger
from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.errors import Misconfigured, unknown_texts
from celery_lanes.leases.in_flight import InFlight
from celery_lanes.leases.reports import ReportChannel
from celery_lanes.protocol import MAX_DEATHS, Store, Witness, advice, check_server, connect_like, durability
from celery_lanes.runtime import clock, threads
from celery_lanes.words import NEUTRAL, Words

logger = get_logger(__name__)

#: When Redis has ended a run, its report arrives within this time.
_END_REPORTED_WITHIN_S = 0.2
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
#: The tick while a message waits to start or an ack is pending, as a fraction of the longest that either may wait.
_BUSY_TICK_FRACTION = 0.5
#: The tick of an idle worker. The in-flight table wakes the thread when it holds more messages than there are slots.
_IDLE_TICK_S = SWEEP_EVERY_S
#: Timeout of the last flush when the worker stops.
_LAST_FLUSH_S = 3.0

#: Transport options of lanes (Celery: broker_transport_options).
LEASE_SECONDS, MAX_DEATHS_OPTION = "lease_seconds", "max_deaths"
DEFAULT_LEASE_S = 15.0
#: The ratio of difflib above which an option is a misspelled one.
ALIKE = 0.8


class BackgroundThread:
    """One per in-flight table. `connect` makes its Redis client; the thread runs from `start` to `stop`."""

    def __init__(self, in_flight: InFlight, connect: Callable[[], Redis]) -> None:
        self._in_flight = in_flight
        self._wakeups = in_flight.wakeups
        store, witness = Store(connect()), Witness(in_flight.words)
        self._flusher = AckFlusher(in_flight, store)
        self._heartbeat = Heartbeat(in_flight, store, witness)
        self._recoverer = Recoverer(in_flight, store, witness)
        self._is_stopping = False
        self._ended = threads.lock()
        self._is_redis_down = False
        self.is_running = False

    def start(self) -> None:
        if not self.is_running:
            self.is_running = True
            self._ended.acquire()
            threads.start_thread(self._run)

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
                self._wakeups.is_background_idle = is_idle
                # A message that arrived before that did not wake this thread.
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
            threads.Signal().wait(_END_REPORTED_WITHIN_S)
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
        if swept.postponed:
            what = unknown_texts(swept.unknown_version)
            logger.error("lanes: postponed %d timers by 5 s, because one %s", swept.postponed, what)
        if swept.expired:
            logger.warning("lanes: leases expired: %d; their messages are handed out again", swept.expired)
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


class AckFlusher:
    """Sends the pending acks that fetches do not carry, and the others if no fetch carries them in time.

    An ack stays pending if sending it failed.
    """

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
            for command in batch.commands(holder=self._in_flight.holder, lease_ms=self._in_flight.lease_ms):
                self._store.run(command)
        except BaseException:
            acks.flush_failed()
            raise
        acks.flush_answered()


_tables: dict[tuple[int, str, str], InFlight] = {}
_threads: dict[InFlight, BackgroundThread] = {}


def in_flight_of(
    connection: Connection, make_channel: Callable[[], ReportChannel] = ReportChannel, words: Words = NEUTRAL
) -> InFlight:
    """This process' in-flight table for the broker of a kombu connection. The first call creates it. A forked child
    never gets its parent's, whose locks and messages belong to the parent. Raises Misconfigured.
    """
    # kombu switches to the next Sentinel when one does not answer; all of them lead to the same broker.
    options = connection.transport_options
    key = (os.getpid(), ";".join(connection.alt) or connection.as_uri(), options.get("global_keyprefix") or "")
    if key not in _tables:
        _check_options(options)
        _tables[key] = InFlight(
            lease_s=_option(options, LEASE_SECONDS, DEFAULT_LEASE_S, 1, 3600),
            max_deaths=int(_option(options, MAX_DEATHS_OPTION, MAX_DEATHS, 1, 1_000_000)),
            channel=make_channel(),
            words=words,
        )
    return _tables[key]


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises Misconfigured for an option that looks misspelled, and for a prefix with which kombu cannot fetch."""
    ours = (LEASE_SECONDS, MAX_DEATHS_OPTION)
    for name in options:
        if name not in ours and (likely := get_close_matches(name, ours, n=1, cutoff=ALIKE)):
            raise Misconfigured(f"{name} in broker_transport_options is not an option; did you mean {likely[0]}?")
    prefix = options.get("global_keyprefix") or ""
    if not isinstance(prefix, str) or not prefix.isascii():
        raise Misconfigured(f"global_keyprefix={prefix!r:.100} in broker_transport_options: use ASCII characters")


def _option(options: Mapping[str, Any], name: str, default: float, least: int, most: int) -> float:
    """A number of broker_transport_options; a whole one, if the default is. Raises Misconfigured."""
    value = options.get(name, default)
    allowed = int if isinstance(default, int) else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed) or not least <= value <= most:
        number = "whole number" if allowed is int else "number"
        raise Misconfigured(
            f"{name}={value!r:.100} in broker_transport_options: use a {number} from {least} to {most:,}"
        )
    return value


def start_background(in_flight: InFlight, connection: Connection) -> BackgroundThread:
    """The running background thread of a table. Raises ServerUnfit before anything is leased from such a server."""
    if in_flight not in _threads:
        with connect_like(connection) as client:
            check_server(client)
            _log_advice(client, in_flight.words)
        # A step must fail soon enough to be retried within the lease.
        timeout_s = min(5.0, in_flight.lease_s / 3)
        _threads[in_flight] = BackgroundThread(in_flight, lambda: connect_like(connection, timeout_s))
    thread = _threads[in_flight]
    thread.start()
    return thread


def _log_advice(client: Redis, words: Words) -> None:
    """Log it once in the worker's log, which may be all that the operator reads."""
    kept = durability(client, words)
    for sentence in [*([] if kept.safe else [str(kept)]), *advice(client, words=words)]:
        logger.warning("lanes: %s", sentence)


def stop_background() -> None:
    """Stop every background thread of this process, after a last flush. A later worker of the process has new ones."""
    while _threads:
        _threads.popitem()[1].stop()
