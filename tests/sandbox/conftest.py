"""One simulator for all tests of this folder, back at its beginning before each."""

from collections.abc import Iterator

import pytest
from calling import Caller

from sandbox.simulator import Simulator, start


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
