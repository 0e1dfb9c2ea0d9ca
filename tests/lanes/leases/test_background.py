"""One in-flight table for each broker and process, and one background thread for each table."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from kombu import Connection

from celery_lanes.errors import ServerUnfit
from celery_lanes.leases import background
from celery_lanes.leases.background import in_flight_of, start_background, stop_background
from tests.lanes.old_server import old_server


@pytest.fixture(autouse=True)
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests start without tables, and end what they started."""
    monkeypatch.setattr(background, "_tables", {})
    monkeypatch.setattr(background, "_threads", {})
    yield
    stop_background()
    for in_flight in background._tables.values():
        in_flight.channel.close()


def test_connections_to_one_broker_share_a_table() -> None:
    url = "redis://127.0.0.1:1/0"
    assert in_flight_of(Connection(url)) is in_flight_of(Connection(url))
    assert in_flight_of(Connection(url)) is not in_flight_of(Connection("redis://127.0.0.1:1/1"))


def test_the_table_survives_a_failover_to_the_next_sentinel() -> None:
    # A new table would have no pool, and the worker would not know the messages in it.
    connection = Connection("sentinel://127.0.0.1:1/0;sentinel://127.0.0.1:2/0")
    in_flight = in_flight_of(connection)
    connection.maybe_switch_next()
    assert connection.as_uri().endswith(":2/0")
    assert in_flight_of(connection) is in_flight


def test_the_table_has_the_transport_options() -> None:
    options = {"lease_seconds": 2.5, "max_deaths": 3}
    in_flight = in_flight_of(Connection("redis://127.0.0.1:1/0", transport_options=options))
    assert (in_flight.lease_ms, in_flight.max_deaths) == (2500, 3)
    assert in_flight_of(Connection("redis://127.0.0.1:1/2")).lease_s == 15


def test_a_child_process_gets_its_own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = Connection("redis://127.0.0.1:1/0")
    parents = in_flight_of(connection)
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    assert in_flight_of(connection) is not parents


def test_a_table_has_one_background_thread_until_it_is_stopped(redis_url: str) -> None:
    connection = Connection(redis_url)
    in_flight = in_flight_of(connection)
    background = start_background(in_flight, connection)
    assert start_background(in_flight, connection) is background
    assert background.is_running
    stop_background()
    assert not background.is_running


def test_no_background_thread_runs_on_a_server_that_is_too_old() -> None:
    with old_server() as url:
        connection = Connection(url)
        with pytest.raises(ServerUnfit, match="too old"):
            start_background(in_flight_of(connection), connection)
    assert background._threads == {}
