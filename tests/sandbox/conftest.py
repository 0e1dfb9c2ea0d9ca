"""One simulator for all tests of this folder, reset between them, and sandboxes that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chatlanes_sandbox.simulator import Simulator, start
from tests.sandbox.calling import BotClient
from tests.sandbox.sandboxes import SandboxProcess


@pytest.fixture(scope="session")
def one_simulator() -> Iterator[Simulator]:
    with start(quirks=False) as running:
        yield running


@pytest.fixture
def simulator(one_simulator: Simulator) -> Iterator[Simulator]:
    yield one_simulator
    one_simulator.reset()


@pytest.fixture
def bot(simulator: Simulator) -> Iterator[BotClient]:
    caller = BotClient(simulator)
    yield caller
    caller.close()


@pytest.fixture
def quirky_bot() -> Iterator[BotClient]:
    with start() as running:
        caller = BotClient(running)
        yield caller
        caller.close()


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Callable[..., SandboxProcess]]:
    started: list[SandboxProcess] = []

    def run(*options: str, **variables: str) -> SandboxProcess:
        started.append(SandboxProcess(tmp_path, *options, **variables))
        return started[-1]

    yield run
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
        one.end()
