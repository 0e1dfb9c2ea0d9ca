"""Throughput: a backlog of no-op tasks, processed by one worker, each side with its best prefetch multiplier."""

from __future__ import annotations

from bench.contenders import CeleryContender, crew, race
from bench.figures import Goal, Result
from bench.scale import CHATS
from bench.sides import LanesSide, Stock
from bench.stage import Stage

#: Options of the worker, and the goal as a multiple of stock Celery.
POOLS = {("-P", "prefork", "-c", "2"): 3.0, ("-P", "threads", "-c", "8"): 5.0}
MULTIPLIERS = ("4", "16", "64")


def run(stage: Stage) -> list[Result]:
    with stage.server("throughput") as url:
        return [_compare(stage, url, pool, times) for pool, times in list(POOLS.items())[: stage.scale.pools]]


def _compare(stage: Stage, url: str, pool: tuple[str, ...], times: float) -> Result:
    crews = [crew(1, *pool, "--prefetch-multiplier", multiplier) for multiplier in MULTIPLIERS]
    ours, stock = race(stage, url, [CeleryContender(side, crews) for side in (LanesSide(), Stock())]).values()
    case = f"no-op, {CHATS} chats, {' '.join(pool)}"
    return Result("throughput", case, "tasks/s", ours, stock, Goal("ratio", "at least", times))
