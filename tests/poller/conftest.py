"""A simulated Bot API for the poller's tests: one process, as new for each test."""

from collections.abc import Iterator

import pytest
import requests

from sandbox.simulator import Simulator, start

TOKEN = "123456:SECRET-part-of_the-TOKEN"


@pytest.fixture(scope="session")
def simulated() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def simulator(simulated: Simulator) -> Simulator:
    simulated.reset()
    return simulated


def set_webhook(simulator: Simulator, url: str) -> None:
    """As another program would; an empty url ends it."""
    answer = requests.post(f"{simulator.url}/bot{TOKEN}/setWebhook", json={"url": url}, timeout=30)
    assert answer.ok
