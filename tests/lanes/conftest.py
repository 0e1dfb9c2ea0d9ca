"""Fixtures of the lane tests: pools, and labs with real workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_lanes.fast.table import PIECES
from tests.support.lab import Lab, LabMaker
from tests.support.lab_app import FAST

#: Every pool with a typical number of slots.
POOLS = {"solo": 1, "prefork": 2, "threads": 8, "gevent": 50}


@pytest.fixture(autouse=True)
def fast_piece(request: pytest.FixtureRequest) -> None:
    """Skip a test marked `fast("tracer")` if workers do not use that piece of lanes/fast here."""
    marker = request.node.get_closest_marker("fast")
    if marker is None:
        return
    [piece] = [piece for piece in PIECES if piece.module == marker.args[0]]
    if not FAST:
        pytest.skip("FAST=0")
    if list(piece.differing()):
        pytest.skip(f"{piece.module} is left off with the installed packages")


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> tuple[str, int]:
    """Each pool in turn, with its number of slots."""
    return request.param, POOLS[request.param]


@pytest.fixture
def make_lab(redis_url: str, tmp_path: Path) -> Iterator[LabMaker]:
    """Makes labs with these settings (lab_app.build)."""
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
