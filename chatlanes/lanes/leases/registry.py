"""Finds the settler of a broker: one for each in a process, whoever asks first makes it.

Promises that a forked child never gets its parent's: its locks and books belong to the parent.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from kombu import Connection
from kombu.log import get_logger
from redis import Redis

from chatlanes.lanes.leases.heartbeat import LeaseKeeper
from chatlanes.lanes.leases.report_channel import Handoff
from chatlanes.lanes.leases.settler import Settler
from chatlanes.lanes.protocol.commands import MAX_DEATHS
from chatlanes.lanes.protocol.connect import connect_like
from chatlanes.lanes.protocol.server import advice, check_server, durability

#: Transport options of ours (Celery: broker_transport_options).
LEASE_SECONDS, MAX_DEATHS_OPTION = "lease_seconds", "max_deaths"
DEFAULT_LEASE_S = 15.0

logger = get_logger(__name__)

_settlers: dict[tuple[int, str], Settler] = {}
_keepers: dict[Settler, LeaseKeeper] = {}


def settler_of(connection: Connection, make_handoff: Callable[[], Handoff] = Handoff) -> Settler:
    """The settler for the broker of a kombu connection (which need not be connected), made by the first call."""
    # Of several Sentinels, kombu goes on to the next when one does not answer: it is the same broker all the same.
    key = (os.getpid(), ";".join(connection.alt) or connection.as_uri())
    if key not in _settlers:
        options = connection.transport_options
        _settlers[key] = Settler(
            lease_s=float(options.get(LEASE_SECONDS, DEFAULT_LEASE_S)),
            max_deaths=int(options.get(MAX_DEATHS_OPTION, MAX_DEATHS)),
            handoff=make_handoff(),
        )
    return _settlers[key]


def keeper_of(settler: Settler, connection: Connection) -> LeaseKeeper:
    """The lease keeper of a settler, running. Raises ServerUnfit, before anything is taken from such a server."""
    if settler not in _keepers:
        with connect_like(connection) as client:
            check_server(client)
            _advise(client)
        # Its steps must fail soon enough to be tried again within the lease.
        timeout_s = min(5.0, settler.lease_s / 3)
        _keepers[settler] = LeaseKeeper(settler, lambda: connect_like(connection, timeout_s))
    keeper = _keepers[settler]
    keeper.start()
    return keeper


def _advise(client: Redis) -> None:
    """In the worker's log, once: it may be all that its operator reads."""
    kept = durability(client)
    for sentence in [*([] if kept.safe else [str(kept)]), *advice(client)]:
        logger.warning("lanes: %s", sentence)


def stop_keepers() -> None:
    """End every lease keeper of this process after a last try to tell Redis what it has to tell."""
    for keeper in _keepers.values():
        keeper.stop()
