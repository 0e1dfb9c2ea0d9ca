"""A receiver with two processes, shared by the tests of a module, and further ones that a test starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from celery_lanes.embedded_server import Server, start_server
from chatlanes_sandbox.simulator import Simulator, start
from tests.poller.webhook.process import ReceiverProcess
from tests.support.bot_api import TOKEN


@pytest.fixture(scope="module")
def simulated() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def simulator(simulated: Simulator) -> Iterator[Simulator]:
    """Reset before and after the test."""
    simulated.reset()
    yield simulated
    simulated.reset()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A Redis that the test may freeze, stop or kill."""
    with start_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture(scope="module")
def one_receiver(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    receiver = ReceiverProcess(tmp_path_factory.mktemp("receiver"), "--workers=2", REDIS_URL=server.url)
    yield receiver
    receiver.end()


@pytest.fixture
def receiver(one_receiver: ReceiverProcess, redis_url: str) -> ReceiverProcess:
    """A receiver with two processes, on an empty Redis."""
    return one_receiver


class StartReceiver(Protocol):
    """Starts `chatlanes webhook` and waits until it listens; it is killed after the test."""

    def __call__(self, *arguments: str, **settings: object) -> ReceiverProcess: ...


@pytest.fixture
def start_receiver(redis_url: str, tmp_path: Path) -> Iterator[StartReceiver]:
    """Uses the embedded Redis by default."""
    running: list[ReceiverProcess] = []

    def begin(*arguments: str, **settings: object) -> ReceiverProcess:
        running.append(ReceiverProcess(tmp_path, *arguments, **{"REDIS_URL": redis_url, **settings}))
        return running[-1]

    yield begin
    for receiver in running:
        receiver.end()
