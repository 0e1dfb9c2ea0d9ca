"""Throughput: a backlog of no-op tasks, worked off by one worker, each side at its best prefetch multiplier.

The backlog is there before the worker starts; the time is taken from 10 % to 95 % of it, from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.figures import Goal, Result, Side
from bench.pace import measure
from bench.rounds import alternate, best
from bench.scale import CHATS
from bench.sides import BacklogSide, Lanes, Stock, worker
from bench.stage import Stage, emptied
from bench.updates import make_updates

#: Options of the worker, and how many times stock Celery the lanes shall reach.
POOLS = {("-P", "prefork", "-c", "2"): 3.0, ("-P", "threads", "-c", "8"): 5.0}

MULTIPLIERS = (4, 16, 64)


def run(stage: Stage) -> list[Result]:
    with stage.server("throughput") as url:
        return [_compare(stage, url, pool, times) for pool, times in list(POOLS.items())[: stage.scale.pools]]


def _compare(stage: Stage, url: str, pool: tuple[str, ...], times: float) -> Result:
    runs = {side.name: _best(stage, url, side, pool) for side in (Lanes(), Stock())}
    measured = alternate(stage.scale.rounds, {name: run.measure for name, run in runs.items()})
    ours, beside = (Side(name, measured[name], run.how) for name, run in runs.items())
    case = f"no-op, {CHATS} chats, {' '.join(pool)}"
    return Result("throughput", case, "tasks/s", ours, beside, Goal("ratio", "at least", times))


def _best(stage: Stage, url: str, side: BacklogSide, pool: tuple[str, ...]) -> Run:
    """With the multiplier that has the highest rate, and a backlog that takes long enough to measure."""
    size = stage.scale.warm_up[side.name]
    tried = [Run(stage, url, side, pool, multiplier, size) for multiplier in MULTIPLIERS[: stage.scale.settings]]
    fastest, rate = best(tried, Run.measure)
    return replace(fastest, size=max(size, round(rate * stage.scale.steady_s)))


@dataclass(frozen=True)
class Run:
    """A backlog of `size`, and a worker that works it off."""

    stage: Stage
    url: str
    side: BacklogSide
    pool: tuple[str, ...]
    multiplier: int
    size: int

    @property
    def how(self) -> str:
        return f"prefetch ×{self.multiplier}"

    def measure(self) -> float:
        """Tasks per second. The worker ends in order, or the bench fails."""
        with emptied(self.url) as client:
            self.side.load(client, self.url, make_updates(self.size, CHATS))
            command = worker(self.side.app, self.url, *self.pool, "--prefetch-multiplier", self.multiplier)
            with self.stage.child(f"{self.side.name}-worker", *command) as child:
                rate = measure(lambda: self.side.left(client), self.size, [child])
        self.stage.tell(f"{' '.join(self.pool)} {self.side.name} {self.how}, {self.size}: {rate:,.0f}/s")
        return rate
