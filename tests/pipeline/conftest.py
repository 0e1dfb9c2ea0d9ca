"""Fixtures of the pipeline tests: pools, a simulated Bot API that is reset for each test, pipelines, collectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from chatlanes_sandbox.simulator import Simulator, start
from tests.pipeline.monitoring.collector import Collector, collecting
from tests.support.pipeline import TOKEN, Pipeline

#: Every pool with a typical number of slots.
POOLS = {"prefork": 2, "threads": 8, "gevent": 50, "solo": 1}


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Each pool in turn, with its number of slots."""
    return request.param, POOLS[request.param]


@pytest.fixture(scope="package")
def simulated() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def simulator(simulated: Simulator) -> Simulator:
    simulated.reset()
    return simulated


class MakePipeline(Protocol):
    """Makes a pipeline with these settings, which is stopped after the test."""

    def __call__(self, **settings: object) -> Pipeline: ...


@pytest.fixture
def make_pipeline(simulator: Simulator, redis_url: str, tmp_path: Path) -> Iterator[MakePipeline]:
    """Pipelines on the embedded Redis, unless `redis_url` names another one. No process is started yet."""
    made: list[Pipeline] = []

    def make(**settings: object) -> Pipeline:
        made.append(Pipeline(tmp_path, simulator, **{"redis_url": redis_url, **settings}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A trace collector."""
    with collecting() as running:
        yield running


@pytest.fixture
def pipeline(make_pipeline: MakePipeline) -> Pipeline:
    return make_pipeline()
