"""The fetches of a channel: when each is sent, its answer, and the delivery of its messages. A fetch settles finished
messages, and leases as many as the worker has capacity for.

A channel that consumes lane queues has two connections in addition to kombu's: one for fetches, and one that blocks on
the wake-up lists of its queues (keys.BELL) while there is nothing to do. Guarantees that each wake-up that is read
leads to a fetch here or on another worker, and that fetches are retried when the server refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from time import monotonic
from typing import Any, TypeVar

from kombu.log import get_logger
from redis.exceptions import NoScriptError, ResponseError

from celery_lanes.errors import Misconfigured
from celery_lanes.leases import InFlight, start_background, tag_of
from celery_lanes.protocol import Fetched, Leased, envelope, keys, verbs
from celery_lanes.protocol.envelope import about
from celery_lanes.protocol.keys import group_of
from celery_lanes.runtime import clock

logger = get_logger(__name__)

T = TypeVar("T")

#: How long to block on the wake-up lists, in seconds and as a fraction of a lease. If a worker dies after it has read a
#: wake-up, other workers fetch within this time, which is shorter than the leases that it left. Each timeout costs an
#: idle worker one fetch.
WAIT_S, WAIT_OF_LEASE = 5.0, 1 / 3
#: The same while the worker has no room for messages of the queues that are read last: it ignores their wake-ups.
LAST_WAIT_S = 0.1
#: How long to wait after a refusal (a replica, a script that takes too long, a full disk), seconds.
REFUSED_PAUSE_S = 1.0

#: The names of the two connections and of the report channel in kombu's poller.
FETCH, WAIT, WAKE = "FETCH", "WAIT", "WAKE"
#: A larger answer would block Redis for its other clients.
MAX_PER_FETCH = 200
#: If the answer takes longer, the connection is dropped, and the command is sent again on a new one.
OVERDUE_S = 15.0


@dataclass
class PolledConnection:
    """A connection of a channel, in addition to kombu's own, with at most one command in flight.

    Sending a command does not block: the event loop polls the connection, and the answer is read when it is readable.
    `kind` is its name in kombu's poller.
    """

    kind: str
    client: Any = None
    sent_s: float | None = None  # monotonic

    @property
    def is_waiting(self) -> bool:
        return self.sent_s is not None

    def send(self, channel: Any, command: list[Any]) -> None:
        if self.client is None:
            self.client = channel._create_client(asynchronous=True)
        channel.connection.cycle.watch(channel, self.client, self.kind)
        self.sent_s = monotonic()
        if channel.global_keyprefix:
            command = import_module("celery_lanes.protocol.prefix").Prefix(channel.global_keyprefix).added(command)
        self.client.connection.send_command(*command)

    def read(self) -> Any:
        """The answer. It ends the command's time in flight, even if an error is raised."""
        try:
            return self.client.parse_response(self.client.connection, self.kind)
        finally:
            self.sent_s = None

    def is_overdue(self) -> bool:
        return self.sent_s is not None and monotonic() - self.sent_s > OVERDUE_S

    def has_answer(self, within_s: float) -> bool:
        return bool(self.client.connection.can_read(timeout=within_s))

    def drop(self, channel: Any) -> None:
        self.sent_s = None
        client, self.client = self.client, None
        connection = getattr(client, "connection", None)
        if connection is not None:
            if channel.connection is not None:  # polling a closed socket would break the event loop
                channel.connection.cycle.unwatch(channel, client, self.kind)
            client.connection = None
            connection.disconnect()


class PendingFetch(PolledConnection):
    """The connection for fetches with the script turn.lua. `asked_s` (clock.now_s) is when the last one was sent.

    Guarantees that after a lost answer the settles are sent again, and that the messages of that answer, which Redis
    has leased to this worker, are released before the next fetch. If the worker dies first, they wait until the leases
    expire.
    """

    def __init__(self, kind: str, channel: Any) -> None:
        super().__init__(kind)
        self._channel = channel
        self._command: Any = None  # the one that was sent last
        self._turns = 0  # fetches with capacity
        self._has_capacity = False
        self.asked_s = 0.0

    @property
    def _in_flight(self) -> InFlight:
        in_flight: InFlight = self._channel.in_flight
        return in_flight

    def ask(self, capacity: int) -> None:
        """Send the settles, and fetch up to this many messages."""
        in_flight = self._in_flight
        self._reconcile()
        self._has_capacity = capacity > 0
        self._turns += self._has_capacity  # otherwise a fetch that only settles would use up the turn of a group
        queues, weights = self._channel.queues_to_read(), self._channel.connection.lane_weights
        first, ordinary, last = (rotated(some, self._turns, weights) for some in queues)
        self._command = verbs.turn(
            [*first, *ordinary, *last],
            holder=in_flight.holder,
            lease_ms=in_flight.lease_ms,
            room=min(capacity, MAX_PER_FETCH),
            holding=in_flight.leased(),
            settles=in_flight.start_fetch(),
            max_deaths=in_flight.max_deaths,
            first=len(first),
            last=len(last),
            last_room=in_flight.room_for_last(queues.last),
            times=in_flight.pending_acks.times_to_fetch(),
        )
        self.asked_s = clock.now_s()
        try:
            self.send(self._channel, self._command.arguments)
        except BaseException:
            self.lost()
            raise

    def answer(self) -> Fetched | None:
        """The answer. None: Redis did not have the script; it is loaded now, and the caller fetches again."""
        try:
            fetched: Fetched = self._command.read(self.read())
        except NoScriptError:  # nothing ran
            self._in_flight.fail_fetch(may_have_run=False)
            self._channel.store.load(self._command.script)
            return None
        except BaseException:
            self._in_flight.fail_fetch()
            self.drop(self._channel)
            raise
        if not self._has_capacity:  # the script did not check for suspects
            fetched = replace(fetched, suspects=None)
        if fetched.lost:
            logger.warning("lanes: settled too late; other workers may run them again: %s", ", ".join(fetched.lost))
        return fetched

    def last_answer(self) -> Fetched | None:
        """The pending answer; use it if you will not fetch again. None: it was lost."""
        fetched = None
        try:
            if self.has_answer(within_s=2.0):
                fetched = self.answer()
        except Exception as error:
            logger.debug("lanes: the last fetch was lost: %s", error)
        if fetched is None:
            self.lost()
            self.drop(self._channel)
        return fetched

    def lost(self) -> None:
        """No answer will arrive, but the script may have run."""
        self.sent_s = None
        self._in_flight.fail_fetch()

    def _reconcile(self) -> None:
        in_flight = self._in_flight
        if not in_flight.must_reconcile:
            return
        # No fetch is in flight, so no message is about to arrive that is not in the table yet.
        released = self._channel.store.reconcile(in_flight.holder, in_flight.leased_ids())
        in_flight.must_reconcile = False
        if released:
            logger.info("lanes: released %d messages that were leased to this worker but never arrived", released)


def rotated(queues: list[str], number: int, weights: Mapping[str, int] | None = None) -> list[str]:
    """The queues in a different order for each `number`: each group is first as often as its weight, and each
    queue within its group. A group comes as often as its weight, evenly spread.
    """
    groups: dict[str, list[str]] = {}
    for queue in queues:
        groups.setdefault(group_of(queue), []).append(queue)
    turns = [*groups.values()]
    if weights:
        most = {name: max(weights.get(queue, 1) for queue in group) for name, group in groups.items()}
        spread = [((nth + 0.5) / most[name], name) for name in groups for nth in range(most[name])]
        turns = [groups[name] for _, name in sorted(spread, key=lambda turn: turn[0])]
    round_, first = divmod(number, max(len(turns), 1))
    ordered = _starting_at(first, turns)
    return [queue for group in ordered for queue in _starting_at(round_ % len(group), group)]


def _starting_at(first: int, items: list[T]) -> list[T]:
    return items[first:] + items[:first]


def unpack(leased: Leased, deadline_s: float) -> dict[str, Any]:
    """The message in kombu's form, with the header for its delivery (delivery.py). Raises ValueError, KeyError or
    TypeError if it is not a message.
    """
    lane: dict[str, Any] = {
        "deadline_s": deadline_s,
        "failed": leased.failed,
        "died": leased.died,
        "waited_s": leased.waited_s,
        "replayed_s": leased.replayed_s,
    }
    stored, *collected = envelope.split(leased.stored)
    if envelope.is_interruptible(leased.stored):
        lane["interruptible"] = True
    elif envelope.is_steered(leased.stored):
        lane["steered"] = True
    if leased.interrupted:
        lane["interrupted"] = leased.interrupted
    if leased.is_stopped:
        lane["stopped"] = True
    if leased.is_gathered:
        lane["gathered"] = True
    if leased.is_marked:
        lane["marked"] = True
    if leased.note:
        lane["note"] = leased.note
    if collected:
        lane["bodies"] = [each.partition(b"\n")[2].decode() for each in collected]
    return envelope.unpack(
        stored, message_id=leased.id, queue=leased.queue, tag=tag_of(leased.id, leased.fence), lane=lane
    )


class FetchLoop:
    """The fetches of one channel, and the delivery of their messages to the consumers; in a Celery worker, to its pool.

    Guarantees that all messages of a fetch are in the in-flight table before any is delivered, and that a message that
    cannot be delivered is released, or buried if no worker could process it.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._fetch, self._wait = PendingFetch(FETCH, channel), PolledConnection(WAIT)
        self._is_notified = True  # there may be ready messages
        self._must_pass_on = False  # a wake-up was read without capacity: another worker must get it
        self._is_started = False
        # The queues that are read last have ready messages, and the worker had no room for them.
        self._waits_for_room = False
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
        self._in_flight.must_reconcile = True
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
        """Block on the wake-up lists. Those of the queues that are read last are left out while this worker has no room
        for their messages: they are for other workers.
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
        self._deliver(fetched, self._fetch.asked_s)

    def _release_fetch_in_flight(self) -> None:
        """Read the pending answer, so that its messages are released before their leases expire."""
        if self._fetch.is_waiting and (fetched := self._fetch.last_answer()):
            self._release(fetched, self._fetch.asked_s)

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

    # -- the messages of a fetch

    def _deliver(self, fetched: Fetched, asked_s: float) -> None:
        """`asked_s` (clock.now_s) is when the fetch was sent, and when its leases start."""
        self._in_flight.finish_fetch(fetched.leased, asked_s, suspects_wait=fetched.suspects, more=fetched.more)
        self._in_flight.wakeups.next_is_due(fetched.due_s)
        deadline_s = asked_s + self._in_flight.lease_s
        try:
            for leased in fetched.leased:
                self._deliver_one(leased, deadline_s)
        except BaseException:  # a shutdown, or a connection error in the callback
            self._in_flight.release_unclaimed()
            raise

    def _release(self, fetched: Fetched, asked_s: float) -> None:
        """Release the messages of a fetch that was answered after the channel stopped consuming."""
        self._in_flight.finish_fetch(fetched.leased, asked_s, suspects_wait=fetched.suspects)
        for leased in fetched.leased:
            self._in_flight.release(tag_of(leased.id, leased.fence), started=False)

    def _deliver_one(self, leased: Leased, deadline_s: float) -> None:
        tag = tag_of(leased.id, leased.fence)
        callback = self._channel.connection._callbacks.get(leased.queue)
        if callback is None:
            self._in_flight.release(tag, started=False)
            return
        try:
            message = unpack(leased, deadline_s)
        except (ValueError, KeyError, TypeError) as error:
            logger.error("lanes: buried %s, which is not a message: %s", leased.id, error, extra=about(leased.id))
            self._in_flight.bury(tag, {"type": "NoMessage", "message": f"it cannot be unpacked: {error}"})
            return
        if self._in_flight.capacity.pool is None:
            self._in_flight.claim(tag, starts=True)
            callback(message)
            return
        try:
            callback(message)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            # Celery failed on its content: it would fail on every other worker too.
            fields = about(leased.id)
            logger.error(
                "lanes: buried %s, which Celery cannot process: %s", leased.id, error, exc_info=True, extra=fields
            )
            self._in_flight.bury(tag, {"type": type(error).__name__, "message": f"Celery cannot process it: {error}"})
