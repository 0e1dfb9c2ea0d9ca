"""Throughput: a backlog of no-op tasks, processed by one worker, each side with its best prefetch multiplier."""

from __future__ import annotations

from bench.measure.figures import Goal, Result
from bench.measure.harness import Harness
from bench.measure.scale import CHATS
from bench.systems.backlogs import LanesSide, Stock
from bench.systems.contenders import CeleryContender, compare, worker_options

#: Options of the worker, and the goal as a multiple of stock Celery.
POOLS = {("-P", "prefork", "-c", "2"): 3.0, ("-P", "threads", "-c", "8"): 5.0}
MULTIPLIERS = ("4", "16", "64")


def run(harness: Harness) -> list[Result]:
    with harness.server("throughput") as url:
        return [_compare(harness, url, pool, times) for pool, times in list(POOLS.items())[: harness.scale.pools]]


def _compare(harness: Harness, url: str, pool: tuple[str, ...], times: float) -> Result:
    choices = [worker_options(1, *pool, "--prefetch-multiplier", multiplier) for multiplier in MULTIPLIERS]
    ours, stock = compare(harness, url, [CeleryContender(side, choices) for side in (LanesSide(), Stock())]).values()
    case = f"no-op, {CHATS} chats, {' '.join(pool)}"
    return Result("throughput", case, "tasks/s", ours, stock, Goal("ratio", "at least", times))
