"""A pytest plugin with one fixture, `telegram`. Without a test that uses it, nothing is imported or started."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from chatlanes_sandbox.simulator import Simulator


@pytest.fixture(scope="session")
def _telegram() -> Iterator[Simulator]:
    from chatlanes_sandbox.simulator import start

    with start(quirks=False) as running:
        yield running


@pytest.fixture
def telegram(_telegram: Simulator) -> Simulator:
    """A simulated Bot API for one test: `url` and `token` for the bot; `write`, `press` and `sent` for the user.

    One process serves all tests of a session. Each test begins with it as if it had just been started.
    """
    _telegram.reset()
    return _telegram
