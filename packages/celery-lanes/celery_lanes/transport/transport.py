"""kombu's Redis transport with lanes: publish is append, consume is fetch, ack is settle.

Guarantees that a queue declared with QUEUE_ARGUMENTS delivers each lane in order, one message at a time, and that every
other queue behaves as in stock kombu; that a message that does not suit its queue is refused before anything is sent;
and that purging or deleting a lane queue buries its messages instead of dropping them. fetch.py fetches. Uses private
parts of kombu, which tests/lanes/test_contract.py checks.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from queue import Empty
from typing import TYPE_CHECKING, Any, NamedTuple

from kombu.connection import Connection, ConnectionPool, PooledConnection
from kombu.log import get_logger
from kombu.transport import redis
from kombu.utils.collections import HashedSeq
from kombu.utils.encoding import bytes_to_str
from kombu.utils.eventio import READ
from kombu.utils.json import dumps, loads
from redis.exceptions import ClusterCrossSlotError, ClusterDownError, NoScriptError, RedisError

from celery_lanes.errors import Misconfigured, ServerUnfit
from celery_lanes.leases import InFlight, in_flight_of, start_background
from celery_lanes.protocol import IS_CLUSTER, Store, check_rights, check_server, connect_like, envelope, keys
from celery_lanes.runtime import clock
from celery_lanes.transport import publish, release_5_6
from celery_lanes.transport.fetch import WAKE, FetchLoop, unpack

#: A queue with this argument is a lane queue: Queue("orders", queue_arguments=QUEUE_ARGUMENTS).
LANES_ARGUMENT = "x-lanes"
QUEUE_ARGUMENTS = {LANES_ARGUMENT: True}
#: A lane queue that also has this argument is emptied at each fetch before any other queue is read.
FIRST_ARGUMENT = "x-lanes-first"
FIRST_QUEUE_ARGUMENTS = {LANES_ARGUMENT: True, FIRST_ARGUMENT: True}
#: A lane queue that also has this argument is read only while no other queue has ready messages, and its messages take
#: at most half of the slots of a worker.
LAST_ARGUMENT = "x-lanes-last"
LAST_QUEUE_ARGUMENTS = {LANES_ARGUMENT: True, LAST_ARGUMENT: True}
#: How many messages of the group of a lane queue are read for one of a group without a weight.
WEIGHT_ARGUMENT = "x-lanes-weight"
MOST_WEIGHT = 100


logger = get_logger(__name__)

_REDIS_ERRORS = (RedisError, OSError)

_StockChannel: Any = redis.Channel if TYPE_CHECKING else object


class Order(IntEnum):
    """When a queue is read."""

    FIRST = 0
    ORDINARY = 1
    LAST = 2


class QueuesToRead(NamedTuple):
    """Queues by the order in which they are read."""

    first: list[str]
    ordinary: list[str]
    last: list[str]


def queue_arguments(*, weight: int = 1) -> dict[str, Any]:
    """QUEUE_ARGUMENTS of a queue with a weight: while there are messages in several groups of queues, a worker takes
    `weight` of its group for one of a group without a weight. Raises Misconfigured unless it is from 1 to 100.
    Use: `Queue("large", queue_arguments=lanes.queue_arguments(weight=3))`.
    """
    return {**QUEUE_ARGUMENTS, WEIGHT_ARGUMENT: checked_weight(weight)}


def checked_weight(weight: Any) -> int:
    if isinstance(weight, int) and not isinstance(weight, bool) and 1 <= weight <= MOST_WEIGHT:
        return weight
    raise Misconfigured(f"the weight of a queue is a whole number from 1 to {MOST_WEIGHT}, not {weight!r:.100}")


def order_of(arguments: dict[str, Any]) -> Order:
    if arguments.get(LAST_ARGUMENT):
        return Order.LAST
    return Order.FIRST if arguments.get(FIRST_ARGUMENT) else Order.ORDINARY


class LaneChannelMixin(_StockChannel):
    """Adds lane queues to one of kombu's Redis channels."""

    connection: Any
    _active_queues: list[str]
    #: The number of receivers of the last fanout message (an event, a remote command). None: unknown.
    heard_by: int | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.fetch_loop = FetchLoop(self)
        super().__init__(*args, **kwargs)

    @cached_property
    def in_flight(self) -> InFlight:
        return in_flight_of(self.connection.client)

    @cached_property
    def store(self) -> Store:
        return Store(connect_like(self.connection.client))

    # -- lane queues and ordinary queues

    def _new_queue(self, queue: str, **kwargs: Any) -> Any:
        arguments = kwargs.get("arguments") or {}
        if arguments.get(LANES_ARGUMENT):
            self.connection.lane_queues[queue] = order_of(arguments)
            if (weight := checked_weight(arguments.get(WEIGHT_ARGUMENT, 1))) > 1:
                self.connection.lane_weights[queue] = weight
        return super()._new_queue(queue, **kwargs)

    def _is_lane_queue(self, queue: str) -> bool:
        return self.connection is not None and queue in self.connection.lane_queues

    @property
    def active_queues(self) -> list[str]:
        """The ordinary queues, which stock kombu consumes with BRPOP."""
        return [queue for queue in super().active_queues if not self._is_lane_queue(queue)]

    @property
    def active_lane_queues(self) -> list[str]:
        """The lane queues, in the order in which they are read."""
        queues = [queue for queue in dict.fromkeys(self._active_queues) if self._is_lane_queue(queue)]
        return sorted(queues, key=self.connection.lane_queues.__getitem__)

    def queues_to_read(self) -> QueuesToRead:
        """The active lane queues by the order in which they are read. If there are only last ones, they are ordinary
        ones: there is nothing to wait for.
        """
        by_order: dict[Order, list[str]] = {order: [] for order in Order}
        for queue in self.active_lane_queues:
            by_order[self.connection.lane_queues[queue]].append(queue)
        if not by_order[Order.FIRST] and not by_order[Order.ORDINARY]:
            return QueuesToRead([], by_order[Order.LAST], [])
        return QueuesToRead(*by_order.values())

    # -- publishing

    def create_publish_batch(self, max_size: int) -> Any:
        """Called by kombu 5.7, which has batches."""
        return import_module("celery_lanes.transport.publish_batch").LanesBatch(self, max_size)

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        if not self._is_lane_queue(queue):
            publish.check_ordinary(queue, message)
            super()._put(queue, message, **kwargs)
            return
        new, at_ms = publish.row(queue, message), publish.due_ms(message)
        batch = kwargs.get("_publish_batch")
        if batch is not None:
            batch.append(new, at_ms)
            return
        try:
            if at_ms is None:
                self.store.append([new])
            else:
                self.store.schedule(new, *publish.timer_of(new.id), at_ms=at_ms)
        except _REDIS_ERRORS:
            message["headers"][envelope.UNCERTAIN] = True
            raise

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **kwargs: Any) -> None:
        """Like kombu's, but keeps the number of receivers. Raises PublishRefused for a message with lane keys."""
        publish.check_fanout(exchange, message)
        if kwargs.get("_publish_batch") is not None:
            super()._put_fanout(exchange, message, routing_key, **kwargs)
            return
        payload = dumps(message)
        with self.conn_or_acquire() as client:
            topics = self._get_publish_topics(exchange, routing_key)
            self.heard_by = sum(client.publish(topic, payload) for topic in topics)

    # -- queues as a whole

    def _purge(self, queue: str) -> int:
        if self._is_lane_queue(queue) or self._has_ready_message(queue):
            return self.store.purge(queue)
        return int(super()._purge(queue))

    def _has_ready_message(self, queue: str) -> bool:
        """True: it is a lane queue, although nobody has declared it here, as in `celery purge`."""
        entry: Any = self.store.client.lindex(queue, -1)
        return entry is not None and bool(self.store.client.exists(keys.MESSAGE.encode() + entry))

    def _delete(self, queue: str, *args: Any, **kwargs: Any) -> None:
        if self._is_lane_queue(queue):
            self.store.purge(queue)
        # A closing channel deletes its private queues. It may be closing because Redis fails, so errors are ignored.
        with suppress(*_REDIS_ERRORS) if self._closing else nullcontext():
            super()._delete(queue, *args, **kwargs)

    def _get(self, queue: str) -> dict[str, Any]:
        """For `queue.get()`: fetches one message, which stays leased until it is acknowledged."""
        if not self._is_lane_queue(queue):
            return super()._get(queue)
        start_background(self.in_flight, self.connection.client)
        asked_s = clock.now_s()
        fetched = self.store.turn([queue], holder=self.in_flight.holder, lease_ms=self.in_flight.lease_ms, room=1)
        for held in self.in_flight.finish_fetch(fetched.leased, asked_s, suspects_wait=fetched.suspects):
            self.in_flight.claim(held.tag, starts=True)
        for leased in fetched.leased:
            return unpack(leased, asked_s + self.in_flight.lease_s)
        raise Empty

    # -- consuming

    def basic_consume(self, queue: str, *args: Any, **kwargs: Any) -> Any:
        consumer_tag = super().basic_consume(queue, *args, **kwargs)
        if self._is_lane_queue(queue):
            self.fetch_loop.start()
        return consumer_tag

    def _basic_cancel(self, consumer_tag: str) -> Any:
        before = self.active_lane_queues
        result = super()._basic_cancel(consumer_tag)
        after = self.active_lane_queues
        if cancelled := set(before) - set(after):
            self.fetch_loop.cancel(cancelled, is_last=not after)
        return result

    def _brpop_read(self, **options: Any) -> bool:
        """Like kombu's, which would end the worker at an invalid message in an ordinary queue."""
        try:
            try:
                found = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
            if not found:
                raise Empty
            queue = bytes_to_str(found[0]).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self._deliver_ordinary(queue, found[1])
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def _deliver_ordinary(self, queue: str, stored: bytes) -> None:
        """Deliver a message of an ordinary queue. An invalid one is logged, without its content, and dropped: any
        program may have written it.
        """
        tag: Any = None
        try:
            message = loads(bytes_to_str(stored))
            tag = message["properties"]["delivery_tag"]
            self.connection._deliver(message, queue)
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            kind = type(error).__name__
            logger.error("lanes: dropped an invalid message of %d bytes from %s: %s", len(stored), queue, kind)
            if isinstance(tag, str) and tag in self.qos._delivered:
                self.basic_reject(tag, requeue=False)

    def maybe_refresh_binding_expiry(self) -> None:
        """A failover may drop kombu's script after kombu has checked that Redis has it. The next refresh loads it."""
        with suppress(NoScriptError):
            super().maybe_refresh_binding_expiry()

    def _on_connection_disconnect(self, connection: Any) -> None:
        self.fetch_loop.on_disconnect(connection)
        super()._on_connection_disconnect(connection)

    def close(self) -> None:
        """Close the channel, even if Redis fails: an open connection would still be polled."""
        self.fetch_loop.close()
        try:
            super().close()
        except _REDIS_ERRORS:  # reading the answer to its last BRPOP failed; the second attempt does not wait for one
            super().close()


stock: Any = release_5_6 if release_5_6.IS_KOMBU else redis


class LanesPoller(stock.MultiChannelPoller):
    """Polls the connections for fetches and wake-ups and the report channel, in addition to kombu's connections."""

    def on_poll_start(self) -> None:
        super().on_poll_start()
        for channel in self._channels:
            channel.fetch_loop.step()

    def on_readable(self, fileno: int) -> Any:
        channel, kind = self._fd_to_chan.get(fileno, (None, None))
        if channel is None:  # closed meanwhile
            return None
        channel.in_flight.reports.poll()  # a remote command, for example, may need the current state
        if kind in channel.fetch_loop.handlers:
            return channel.fetch_loop.handlers[kind]()
        return super().on_readable(fileno)

    def watch(self, channel: Any, client: Any, kind: str) -> None:
        """Connect and poll a client of a channel, unless this is already done."""
        if not self._client_registered(channel, client, kind):
            self._register(channel, client, kind)

    def unwatch(self, channel: Any, client: Any, kind: str) -> None:
        """Stop polling a client, before its connection is closed."""
        sock = self._chan_to_sock.pop((channel, client, kind), None)
        if sock is not None and sock.fileno() >= 0:
            self.unwatch_pipe(sock.fileno())

    def watch_pipe(self, channel: Any, fileno: int) -> None:
        self._fd_to_chan[fileno] = (channel, WAKE)
        self.poller.register(fileno, READ)

    def unwatch_pipe(self, fileno: int) -> None:
        if self._fd_to_chan.pop(fileno, None) is not None:
            self._unregister_from_poll(fileno)


class LanesQoS(stock.QoS):
    """Acknowledgements of lane messages go to the in-flight table, which outlives the channel."""

    def append(self, message: Any, delivery_tag: str) -> None:
        if not is_lane_tag(delivery_tag):  # a lane message needs no saving: its fetch has leased it
            super().append(message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        if is_lane_tag(delivery_tag):
            self.channel.in_flight.done(delivery_tag)
        else:
            super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        if not is_lane_tag(delivery_tag):
            super().reject(delivery_tag, requeue=requeue)
        elif requeue:
            self.channel.in_flight.release(delivery_tag, died=True)
        else:
            self.channel.in_flight.bury(delivery_tag, _REJECTED)

    def can_consume_max_estimate(self) -> int:
        estimate = super().can_consume_max_estimate()
        if estimate is None:
            raise Misconfigured("a lane queue needs a prefetch count: unlimited prefetch would hold every lane")
        return int(estimate)


_REJECTED = {
    "type": "Rejected",
    "message": "the worker rejected it: an unknown task, an invalid message, or Reject(requeue=False); "
    "the worker's log says which",
}


def is_lane_tag(delivery_tag: str) -> bool:
    """Stock kombu's tags are UUIDs; tags of lane messages are `<message id>#<fence>`."""
    return "#" in str(delivery_tag)


class LanesChannel(LaneChannelMixin, stock.Channel):
    QoS = LanesQoS


class LanesSentinelChannel(LaneChannelMixin, stock.SentinelChannel):
    QoS = LanesQoS


#: The URLs with which this process may use all commands of the scripts.
_allowed: set[str] = set()


class LanesTransport(stock.Transport):
    """For `redis://` and `rediss://`, instead of kombu's class."""

    Channel = LanesChannel
    cycle: LanesPoller

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = LanesPoller()
        self.lane_queues: dict[str, Order] = {}  # name -> when it is read
        self.lane_weights: dict[str, int] = {}  # name -> above 1

    def establish_connection(self) -> Any:
        """Raises ResponseError if the server refuses writes, so that Celery retries with growing pauses, as it does
        for a server that does not answer. Raises ServerUnfit for a cluster, an old server, and a user with too few
        rights.
        """
        established = super().establish_connection()
        try:
            # A write that changes nothing. It fails on a replica, a full disk or full memory, and in a cluster, because
            # its keys have different slots.
            channel = self._avail_channels[-1]  # whose client adds no prefix to this command
            none = f"{channel.global_keyprefix}{keys.COUNTS}:none"
            channel.client.sunionstore(none, f"{none}:2")
            if (uri := self.client.as_uri(include_password=True)) not in _allowed:
                check_server(channel.store.client)
                check_rights(channel.store)
                _allowed.add(uri)
        except BaseException as error:
            self._avail_channels.pop().close()
            if isinstance(error, ClusterCrossSlotError | ClusterDownError):
                raise ServerUnfit(IS_CLUSTER) from None
            raise
        return established


class LanesSentinelTransport(LanesTransport, stock.SentinelTransport):
    """For `sentinel://`."""

    Channel = LanesSentinelChannel


_INSTEAD_OF: dict[Any, type[LanesTransport]] = {
    redis.Transport: LanesTransport,
    redis.SentinelTransport: LanesSentinelTransport,
}


class _LanesMixin(Connection):
    """A connection that uses lanes. It keeps its URL, whose scheme selects TLS and which Flower reads."""

    def get_transport_cls(self) -> Any:
        stock_cls = super().get_transport_cls()
        return _INSTEAD_OF.get(stock_cls, stock_cls)

    def as_uri(self, include_password: bool = False, *more: Any, **others: Any) -> str:
        """Shows a hidden password only if there is one; kombu shows one always."""
        return str(super().as_uri(include_password or not self.password, *more, **others))

    def __eqhash__(self) -> Any:
        """The key of kombu's pools, which all apps of the process share."""
        return HashedSeq(LanesConnection, super().__eqhash__())


class LanesConnection(_LanesMixin):
    """The connections of an app with lanes."""

    def Pool(self, limit: int | None = None, **options: Any) -> ConnectionPool:  # noqa: N802
        return _LanesPool(self, limit, **options)


class _PooledLanesConnection(_LanesMixin, PooledConnection):
    pass


class _LanesPool(ConnectionPool):
    def new(self) -> PooledConnection:
        return _PooledLanesConnection(self, **dict(self.connection._info(resolve=False)))
