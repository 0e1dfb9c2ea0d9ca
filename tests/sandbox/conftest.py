"""One simulator for all tests of this folder, back at its beginning before each; and sandboxes that are ended."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chatlanes.sandbox.simulator import Simulator, start
from tests.sandbox.calling import Caller
from tests.sandbox.sandboxes import Sandbox


@pytest.fixture(scope="session")
def one_simulator() -> Iterator[Simulator]:
    with start(quirks=False) as running:
        yield running


@pytest.fixture
def simulator(one_simulator: Simulator) -> Iterator[Simulator]:
    yield one_simulator
    one_simulator.reset()


@pytest.fixture
def bot(simulator: Simulator) -> Iterator[Caller]:
    caller = Caller(simulator)
    yield caller
    caller.close()


@pytest.fixture
def quirky_bot() -> Iterator[Caller]:
    with start() as running:
        caller = Caller(running)
        yield caller
        caller.close()


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Callable[..., Sandbox]]:
    started: list[Sandbox] = []

    def run(*options: str, **variables: str) -> Sandbox:
        started.append(Sandbox(tmp_path, *options, **variables))
        return started[-1]

    yield run
    for one in started:
        if one.process.poll() is None:
            one.process.terminate()
        one.end()
