"""The wheels, built and installed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chatlanes_sandbox.simulator import Simulator, start
from tests.packaging.wheel import Installed, build
from tests.support.process import Process


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheels.values(), tmp_path_factory.mktemp("installed"))


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with start() as running:
        yield running


Start = Callable[..., Process]


@pytest.fixture
def started(installed: Installed) -> Iterator[Start]:
    """Starts a command of the wheel; it is killed after the test."""
    running: list[Process] = []

    def begin(*words: str, at: Path, **settings: object) -> Process:
        running.append(installed.start(*words, at=at, **settings))
        return running[-1]

    yield begin
    for process in running:
        process.end()
