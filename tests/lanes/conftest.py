"""Experiments with real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lab import Lab, LabMaker

#: Every pool, with as many slots as its kind is used with.
POOLS = {"solo": 1, "prefork": 2, "threads": 8, "gevent": 50}


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Each pool and its slots."""
    return request.param, POOLS[request.param]


@pytest.fixture
def make_lab(redis_url: str, tmp_path: Path) -> Iterator[LabMaker]:
    """Makes an experiment with settings of its own (app.build)."""
    made: list[Lab] = []

    def make(url: str = redis_url, **settings: Any) -> Lab:
        made.append(Lab(url, tmp_path, **settings))
        return made[-1]

    yield make
    for lab in made:
        lab.close()


@pytest.fixture
def lab(make_lab: LabMaker) -> Lab:
    return make_lab()
