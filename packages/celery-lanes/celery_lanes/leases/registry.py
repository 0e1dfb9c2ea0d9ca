"""The in-flight table and the background thread of each broker, created on first use in a process.

Guarantees that a forked child never gets its parent's table, whose locks and messages belong to the parent.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kombu import Connection
from kombu.log import get_logger
from redis import Redis

from celery_lanes.leases.background import BackgroundThread
from celery_lanes.leases.in_flight import InFlight
from celery_lanes.leases.reports import ReportChannel
from celery_lanes.protocol import MAX_DEATHS, advice, check_server, connect_like, durability
from celery_lanes.words import NEUTRAL, Words

#: Transport options of lanes (Celery: broker_transport_options).
LEASE_SECONDS, MAX_DEATHS_OPTION = "lease_seconds", "max_deaths"
DEFAULT_LEASE_S = 15.0

logger = get_logger(__name__)

_tables: dict[tuple[int, str], InFlight] = {}
_threads: dict[InFlight, BackgroundThread] = {}


def in_flight_of(
    connection: Connection, make_channel: Callable[[], ReportChannel] = ReportChannel, words: Words = NEUTRAL
) -> InFlight:
    """The in-flight table for the broker of a kombu connection. The first call creates it."""
    # kombu switches to the next Sentinel when one does not answer; all of them lead to the same broker.
    key = (os.getpid(), ";".join(connection.alt) or connection.as_uri())
    if key not in _tables:
        options = connection.transport_options
        _tables[key] = InFlight(
            lease_s=float(options.get(LEASE_SECONDS, DEFAULT_LEASE_S)),
            max_deaths=int(options.get(MAX_DEATHS_OPTION, MAX_DEATHS)),
            channel=make_channel(),
            words=words,
        )
    return _tables[key]


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
