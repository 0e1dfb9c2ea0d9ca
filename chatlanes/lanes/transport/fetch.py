"""When a channel fetches: to settle what is done, or to ask for as many messages as it has capacity for.

A channel that consumes lane queues has two connections for this besides kombu's own: one for fetches, and one that
blocks on the wake-up lists of its queues (keys.BELL) while there is nothing to do.
Guarantees that no wake-up is forgotten, and that a server that refuses is asked again instead of ending the worker.
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

#: How long to block on the wake-ups, seconds, and in terms of a lease. A wake-up that got lost with the worker that
#: read it costs at most this, less than the lease that this worker left; each timeout costs an idle worker a fetch.
WAIT_S, WAIT_OF_LEASE = 5.0, 1 / 3
#: A server that refused (a replica, a script that takes too long, no disk) is asked again after this time, seconds.
REFUSED_PAUSE_S = 1.0

#: Under these names kombu's poller knows the two connections, and the report channel.
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
        """The channel consumes its first lane queue."""
        self._is_notified = True
        if self._is_started:
            return
        self._is_started = True
        self._in_flight.wakeups.add_consumer()
        # Redis may have handed out messages that never arrived here, or be another server by now.
        self._in_flight.require_reconcile()
        start_background(self._in_flight, self._channel.connection.client)
        self._channel.connection.cycle.watch_pipe(self._channel, self._in_flight.channel.reader)

    def step(self) -> None:
        """Send what there is to send. The event loop calls this each time it goes round."""
        if self._is_started and clock.now_s() >= self._paused_until_s:
            self._unless_refused(self._step)

    def _step(self) -> None:
        self._drop_overdue()
        if self._fetch.is_waiting:
            return
        capacity = self._capacity()
        if self._in_flight.capacity.can_wait() and not self._must_pass_on:
            return
        if self._in_flight.pending_acks.has_settles() or self._must_pass_on or (self._is_notified and capacity):
            self._must_pass_on = self._is_notified = False
            self._fetch.ask(capacity)
        elif capacity and not self._is_notified and not self._wait.is_waiting:
            lists = [keys.bell(queue) for queue in self._channel.active_lane_queues]
            timeout_s = min(WAIT_S, self._in_flight.lease_s * WAIT_OF_LEASE)
            self._wait.send(self._channel, ["BRPOP", *lists, timeout_s])

    def cancel(self, queues: set[str], *, is_last: bool) -> None:
        """No more from these queues: their messages that no pool was given are released."""
        self._release_fetch_in_flight()
        for queue in queues:
            self._in_flight.release_unclaimed(queue=queue)
        if is_last:
            self.close()

    def close(self) -> None:
        """No more fetches: from here on the background thread settles."""
        if not self._is_started:
            return
        self._release_fetch_in_flight()
        # Celery drops messages that its pool was not given, or runs them late: neither may happen.
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
        """A refusal that is raised here would make Celery reconnect again and again, for as long as it lasts."""
        try:
            step()
        except ResponseError as error:
            if not self._is_refused:
                logger.error("lanes: Redis refuses to hand out: %s. Asking again until it does.", error)
            self._is_refused = self._is_notified = True
            self._paused_until_s = clock.now_s() + REFUSED_PAUSE_S

    def _capacity(self) -> int:
        qos = self._channel.qos
        if self._in_flight.capacity.pool is None:  # not a Celery worker, but a consumer of the application's own
            if not qos.prefetch_count:
                raise Misconfigured("set a prefetch count before consuming from a lane queue: consumer.qos(…)")
            return max(0, int(qos.prefetch_count) - self._in_flight.holding())
        ordinary = len(qos._delivered) - len(qos._dirty)
        return self._in_flight.capacity.size(ordinary)

    def _read_fetch(self) -> None:
        # An idle connection that the server closed stays readable; the poller would report it again and again.
        if not self._fetch.is_waiting and not self._fetch.has_answer(within_s=0):
            return
        fetched = self._fetch.answer()
        if fetched is None:
            self._is_notified = True
            return
        if self._is_refused:
            logger.info("lanes: Redis hands out again")
        self._is_refused = False
        # A wake-up that was read while the fetch was in flight may be for a message that came after it.
        self._is_notified = self._is_notified or fetched.more
        self._dispatcher.deliver(fetched, self._fetch.asked_s)

    def _release_fetch_in_flight(self) -> None:
        """Read the answer that is on its way, so that its messages are released before their leases expire."""
        if self._fetch.is_waiting and (fetched := self._fetch.last_answer()):
            self._dispatcher.release(fetched, self._fetch.asked_s)

    def _read_wait(self) -> None:
        try:
            self._wait.read()
        except BaseException:
            self._wait.drop(self._channel)
            raise
        # Also after a timeout: now and then a wake-up gets lost, and a fetch is cheap.
        self._is_notified = True
        self._must_pass_on = self._capacity() == 0

    def _drop_overdue(self) -> None:
        for connection in (self._fetch, self._wait):
            if connection.is_overdue():
                logger.warning("lanes: no answer from Redis for %.0f s; connecting anew", OVERDUE_S)
                if connection is self._fetch:
                    self._fetch.lost()
                connection.drop(self._channel)
