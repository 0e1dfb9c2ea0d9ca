"""Pieces: no-op tasks with all of chatlanes/lanes/fast, without one piece, without all, and on stock Celery.

The ratio of a line is the gain of the piece that the other side lacks.
"""

from __future__ import annotations

from dataclasses import replace

from bench.contenders import CeleryContender, crew, race
from bench.figures import Goal, Result
from bench.sides import LanesSide, Stock
from bench.stage import Stage
from chatlanes.lanes.fast.table import PIECES

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


def run(stage: Stage) -> list[Result]:
    stage = Stage(stage.directory, replace(stage.scale, trial=TRIAL))
    with stage.server("pieces") as url:
        return [line for pool, times in POOLS.items() for line in _lines(stage, url, pool, times)]


def _lines(stage: Stage, url: str, pool: tuple[str, ...], times: float) -> list[Result]:
    count, name, *options = pool
    crews = [crew(int(count), "-P", name, *options, "--prefetch-multiplier", "64")]
    pieces = [piece.module for piece in PIECES if ONLY.get(piece.module, name) == name]
    sides = race(
        stage,
        url,
        [
            CeleryContender(LanesSide(ALL), crews),
            CeleryContender(LanesSide(NONE), crews, environment={"FAST": "0"}),
            CeleryContender(Stock(), crews),
            *(CeleryContender(LanesSide(_without(piece)), crews, environment={"BENCH_OFF": piece}) for piece in pieces),
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
