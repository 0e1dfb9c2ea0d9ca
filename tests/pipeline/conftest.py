"""A simulated Bot API for all tests of the pipeline, as new for each; and what they start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from chatlanes.sandbox.simulator import Simulator, start
from tests.pipeline.monitoring.collector import Collector, collecting
from tests.support.pipeline import TOKEN, Pipeline

#: Every pool, with as many slots as its kind is used with.
POOLS = {"prefork": 2, "threads": 8, "gevent": 50, "solo": 1}


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Each pool and its slots."""
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
    """A pipeline with settings of its own; ended after the test."""

    def __call__(self, **settings: object) -> Pipeline: ...


@pytest.fixture
def make_pipeline(simulator: Simulator, redis_url: str, tmp_path: Path) -> Iterator[MakePipeline]:
    """By default on the embedded Redis, with nothing running yet."""
    made: list[Pipeline] = []

    def make(**settings: object) -> Pipeline:
        made.append(Pipeline(tmp_path, simulator, **{"redis_url": redis_url, **settings}))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for pipeline in made:
        pipeline.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Of traces."""
    with collecting() as running:
        yield running


@pytest.fixture
def pipeline(make_pipeline: MakePipeline) -> Pipeline:
    return make_pipeline()
