"""The simulated Bot API of the poller's tests, one process, reset for each test; and the poller itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from celery_lanes.embedded_server import Server, start_server
from chatlanes_sandbox.simulator import Simulator, start
from tests.poller.process import RunningPoller
from tests.support.bot_api import TOKEN


@pytest.fixture(scope="session")
def simulated() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def simulator(simulated: Simulator) -> Simulator:
    simulated.reset()
    return simulated


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A Redis that the test may freeze, stop or kill."""
    with start_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def unsafe_redis(tmp_path: Path) -> Iterator[Server]:
    """A Redis without persistence."""
    with start_server(tmp_path / "redis", extra=["--appendonly", "no"]) as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Server]:
    """A Redis Cluster, which lanes do not support."""
    with start_server(tmp_path / "redis", extra=["--cluster-enabled", "yes"]) as server:
        yield server


class StartPoller(Protocol):
    """Starts `chatlanes poller` with these arguments and settings; it is killed after the test."""

    def __call__(self, *arguments: str, **settings: object) -> RunningPoller: ...


@pytest.fixture
def start_poller(simulator: Simulator, redis_url: str, tmp_path: Path) -> Iterator[StartPoller]:
    """Uses the simulator and the embedded Redis by default."""
    running: list[RunningPoller] = []
    usual = {"BOT_TOKEN": TOKEN, "BOT_API_URL": simulator.url, "REDIS_URL": redis_url}

    def begin(*arguments: str, **settings: object) -> RunningPoller:
        running.append(RunningPoller(tmp_path, *arguments, **{**usual, **settings}))
        return running[-1]

    yield begin
    for poller in running:
        poller.end()
