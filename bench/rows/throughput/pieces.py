"""Pieces: no-op tasks with all of celery_lanes/fast, without one piece, without all, and on stock Celery.

The ratio of a line is the gain of the piece that the other side lacks.
"""

from __future__ import annotations

from dataclasses import replace

from bench.measure.figures import Goal, Result
from bench.measure.harness import Harness
from bench.systems.backlogs import LanesSide, Stock
from bench.systems.contenders import CeleryContender, compare, worker_options
from celery_lanes.fast.table import PIECES

ALL, NONE, STOCK = "all pieces", "FAST=0", "stock"

#: Tasks of a round, enough for one second.
TRIAL = {"others": 20_000, NONE: 10_000, STOCK: 1_500}

#: The workers of a pool, and the goal with FAST=0 as a multiple of stock Celery.
POOLS = {
    ("1", "prefork", "-c", "2"): 3.4,
    ("1", "threads", "-c", "8"): 6.0,
    ("1", "gevent", "-c", "100"): 6.0,
    ("2", "solo"): 8.0,
}

#: The pools of pieces that apply to one pool only.
ONLY = {"prefork_pool": "prefork", "thread_pool": "threads", "gevent_pool": "gevent"}


def run(harness: Harness) -> list[Result]:
    harness = Harness(harness.directory, replace(harness.scale, trial=TRIAL))
    with harness.server("pieces") as url:
        return [line for pool, times in POOLS.items() for line in _lines(harness, url, pool, times)]


def _lines(harness: Harness, url: str, pool: tuple[str, ...], times: float) -> list[Result]:
    count, name, *options = pool
    choices = [worker_options(int(count), "-P", name, *options, "--prefetch-multiplier", "64")]
    pieces = [piece.module for piece in PIECES if ONLY.get(piece.module, name) == name]
    sides = compare(
        harness,
        url,
        [
            CeleryContender(LanesSide(ALL), choices),
            CeleryContender(LanesSide(NONE), choices, environment={"FAST": "0"}),
            CeleryContender(Stock(), choices),
            *(
                CeleryContender(LanesSide(_without(piece)), choices, environment={"BENCH_OFF": piece})
                for piece in pieces
            ),
        ],
    )
    case = " ".join((name, *options))

    def line(ours: str, beside: str, goal: Goal | None = None) -> Result:
        return Result("pieces", f"{case}: {ours}", "tasks/s", sides[ours], sides[beside], goal)

    return [
        line(ALL, STOCK),
        line(NONE, STOCK, Goal("ratio", "at least", times)),
        *(line(ALL, _without(piece)) for piece in pieces),
    ]


def _without(piece: str) -> str:
    return f"without {piece}"
