"""kombu's Redis transport with lanes: publish is append, consume is fetch, ack is settle.

Guarantees that a queue declared with QUEUE_ARGUMENTS delivers each lane in order, one message at a time, and that every
other queue behaves as in stock kombu. Uses private parts of kombu, which tests/lanes/test_contract.py checks.
"""

from __future__ import annotations

from typing import Any

from kombu.connection import Connection, ConnectionPool, PooledConnection
from kombu.transport import redis
from kombu.utils.collections import HashedSeq
from kombu.utils.eventio import READ

from celery_lanes.errors import Misconfigured
from celery_lanes.protocol import keys
from celery_lanes.transport import release_5_6
from celery_lanes.transport.channel import LaneChannelMixin, Order
from celery_lanes.transport.fetch import WAKE

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


class LanesTransport(stock.Transport):
    """For `redis://` and `rediss://`, instead of kombu's class."""

    Channel = LanesChannel
    cycle: LanesPoller

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cycle = LanesPoller()
        self.lane_queues: dict[str, Order] = {}  # name -> when it is read

    def establish_connection(self) -> Any:
        """Raises ResponseError if the server refuses writes, so that Celery retries with growing pauses, as it does
        for a server that does not answer.
        """
        established = super().establish_connection()
        try:
            # A write that changes nothing. It fails on a replica, a full disk or full memory.
            self._avail_channels[-1].client.setrange(keys.COUNTS + ":none", 0, b"")
        except BaseException:
            self._avail_channels.pop().close()
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
