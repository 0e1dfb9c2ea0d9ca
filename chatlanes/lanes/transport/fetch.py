"""Decides when a channel fetches: to settle messages that are done, or to lease as many as it has capacity for.

A channel that consumes lane queues has two connections in addition to kombu's: one for fetches, and one that blocks on
the wake-up lists of its queues (keys.BELL) while there is nothing to do. Guarantees that each wake-up that is read
leads to a fetch here or on another worker, and that fetches are retried when the server refuses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu.log import get_logger
from redis.exceptions import ResponseError

from chatlanes.lanes.errors import Misconfigured
from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.leases.registry import start_background
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.transport.connection import OVERDUE_S, PolledConnection
from chatlanes.lanes.transport.dispatch import Dispatcher
from chatlanes.lanes.transport.pending_fetch import PendingFetch

logger = get_logger(__name__)

#: How long to block on the wake-up lists, in seconds and as a fraction of a lease. If a worker dies after it has read a
#: wake-up, other workers fetch within this time, which is shorter than the leases that it left. Each timeout costs an
#: idle worker one fetch.
WAIT_S, WAIT_OF_LEASE = 5.0, 1 / 3
#: The same while there is no room for messages of the queues that are read last: their wake-ups are not waited for.
LAST_WAIT_S = 0.1
#: How long to wait after a refusal (a replica, a script that takes too long, a full disk), seconds.
REFUSED_PAUSE_S = 1.0

#: The names of the two connections and of the report channel in kombu's poller.
FETCH, WAIT, WAKE = "FETCH", "WAIT", "WAKE"


class FetchLoop:
    """The fetches of one channel."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._fetch, self._wait = PendingFetch(FETCH, channel), PolledConnection(WAIT)
        self._dispatcher = Dispatcher(channel)
        self._is_notified = True  # there may be ready messages
        self._must_pass_on = False  # a wake-up was read without capacity: another worker must get it
        self._is_started = False
        self._waits_for_room = (
            False  # the queues that are read last have ready messages, and there was no room for them
        )
        self._is_refused = False
        self._paused_until_s = 0.0
        self.handlers: dict[str, Callable[[], Any]] = {
            FETCH: lambda: self._unless_refused(self._read_fetch),
            WAIT: lambda: self._unless_refused(self._read_wait),
            WAKE: lambda: self._in_flight.reports.read(),
        }

    @property
    def _in_flight(self) -> InFlight:
        in_flight: InFlight = self._channel.in_flight
        return in_flight

    def start(self) -> None:
        """Called when the channel consumes a lane queue. Only the first call starts the loop."""
        self._is_notified = True
        if self._is_started:
            return
        self._is_started = True
        self._in_flight.wakeups.add_consumer()
        # Redis may have leased messages to this worker that never arrived, or may be another server by now.
        self._in_flight.require_reconcile()
        start_background(self._in_flight, self._channel.connection.client)
        self._channel.connection.cycle.watch_pipe(self._channel, self._in_flight.channel.reader)

    def step(self) -> None:
        """Send a fetch or a wait if one is due. Called in each iteration of the event loop."""
        if self._is_started and clock.now_s() >= self._paused_until_s:
            self._unless_refused(self._step)

    def _step(self) -> None:
        self._drop_overdue()
        if self._fetch.is_waiting:
            return
        self._is_notified = self._has_room_again() or self._is_notified
        capacity = self._capacity()
        if self._in_flight.capacity.can_wait() and not self._must_pass_on:
            return
        if self._in_flight.pending_acks.has_settles() or self._must_pass_on or (self._is_notified and capacity):
            self._must_pass_on = self._is_notified = False
            self._fetch.ask(capacity)
        elif capacity and not self._is_notified and not self._wait.is_waiting:
            self._send_wait()

    def _send_wait(self) -> None:
        """Block on the wake-up lists. Those of the queues that are read last are left out while there is no room for
        their messages: they are for other workers.
        """
        first, ordinary, last = self._channel.queues_to_read()
        timeout_s = min(WAIT_S, self._in_flight.lease_s * WAIT_OF_LEASE)
        if last and not self._in_flight.room_for_last(last):
            timeout_s, last = LAST_WAIT_S, []
        lists = [keys.bell(queue) for queue in (*first, *ordinary, *last)]
        self._wait.send(self._channel, ["BRPOP", *lists, timeout_s])

    def _has_room_again(self) -> bool:
        """True once when messages of the queues that are read last wait, and there is room for them again."""
        if not self._waits_for_room or not self._in_flight.room_for_last(self._channel.queues_to_read().last):
            return False
        self._waits_for_room = False
        return True

    def cancel(self, queues: set[str], *, is_last: bool) -> None:
        """Stop consuming these queues: their messages that were not passed to a pool are released."""
        self._release_fetch_in_flight()
        for queue in queues:
            self._in_flight.release_unclaimed(queue=queue)
        if is_last:
            self.close()

    def close(self) -> None:
        """Stop fetching: from now on the background thread settles."""
        if not self._is_started:
            return
        self._release_fetch_in_flight()
        # Celery would drop the messages that were not passed to the pool, or run them late.
        self._in_flight.release_unclaimed()
        self._is_started = False
        if self._channel.connection is not None:
            self._channel.connection.cycle.unwatch_pipe(self._in_flight.channel.reader)
        self._in_flight.wakeups.remove_consumer()
        self._fetch.drop(self._channel)
        self._wait.drop(self._channel)

    def on_disconnect(self, connection: Any) -> None:
        """A connection of the channel was closed, by this worker or by an error."""
        if connection is getattr(self._fetch.client, "connection", None) and self._fetch.is_waiting:
            self._fetch.lost()
        if connection is getattr(self._wait.client, "connection", None):
            self._wait.sent_s = None

    def _unless_refused(self, step: Callable[[], None]) -> None:
        """Run a step, and pause after a refusal. If it were raised, Celery would reconnect in a loop while it lasts."""
        try:
            step()
        except ResponseError as error:
            if not self._is_refused:
                logger.error("lanes: Redis refuses fetches: %s. Retrying until it accepts one.", error)
            self._is_refused = self._is_notified = True
            self._paused_until_s = clock.now_s() + REFUSED_PAUSE_S

    def _capacity(self) -> int:
        qos = self._channel.qos
        if self._in_flight.capacity.pool is None:  # not a Celery worker but the application's own kombu consumer
            if not qos.prefetch_count:
                raise Misconfigured("set a prefetch count before consuming from a lane queue: consumer.qos(…)")
            return max(0, int(qos.prefetch_count) - self._in_flight.holding())
        ordinary = len(qos._delivered) - len(qos._dirty)
        return self._in_flight.capacity.size(ordinary)

    def _read_fetch(self) -> None:
        # An idle connection that the server has closed stays readable, and the poller would report it forever.
        if not self._fetch.is_waiting and not self._fetch.has_answer(within_s=0):
            return
        fetched = self._fetch.answer()
        if fetched is None:
            self._is_notified = True
            return
        if self._is_refused:
            logger.info("lanes: Redis accepts fetches again")
        self._is_refused = False
        # A wake-up that was read while the fetch was in flight may announce a message that the fetch did not see.
        self._is_notified = self._is_notified or fetched.more
        self._waits_for_room = fetched.last_wait
        self._dispatcher.deliver(fetched, self._fetch.asked_s)

    def _release_fetch_in_flight(self) -> None:
        """Read the pending answer, so that its messages are released before their leases expire."""
        if self._fetch.is_waiting and (fetched := self._fetch.last_answer()):
            self._dispatcher.release(fetched, self._fetch.asked_s)

    def _read_wait(self) -> None:
        try:
            self._wait.read()
        except BaseException:
            self._wait.drop(self._channel)
            raise
        # Also after a timeout: wake-ups can get lost, and a fetch is cheap.
        self._is_notified = True
        self._must_pass_on = self._capacity() == 0

    def _drop_overdue(self) -> None:
        for connection in (self._fetch, self._wait):
            if connection.is_overdue():
                logger.warning("lanes: no answer from Redis for %.0f s; reconnecting", OVERDUE_S)
                if connection is self._fetch:
                    self._fetch.lost()
                connection.drop(self._channel)
