"""Peers: a backlog of no-op tasks, against stock Celery and five other queues on Redis, each at its best settings.

All of them get the same updates on the same server, with the appendfsync policy of the case. Lanes keep each chat in
order and lose nothing; none of the others keeps an order, and some lose the tasks that a dead worker held.
"""

from __future__ import annotations

from bench.measure.figures import Goal, Result
from bench.measure.harness import Harness
from bench.peers import PEERS
from bench.systems.backlogs import LanesSide, Stock
from bench.systems.contenders import WORKER_OPTIONS, CeleryContender, Contender, compare

GOALS = {"stock": Goal("ratio", "at least", 5)}
AHEAD = Goal("ratio", "at least", 1)


def run(harness: Harness) -> list[Result]:
    with harness.server("peers") as url:
        return [line for how in harness.scale.fsyncs for line in _lines(harness, url, how)]


def _lines(harness: Harness, url: str, appendfsync: str) -> list[Result]:
    contenders: list[Contender] = [
        CeleryContender(LanesSide(), WORKER_OPTIONS),
        CeleryContender(Stock(), WORKER_OPTIONS),
        *PEERS,
    ]
    sides = compare(harness, url, contenders, appendfsync)
    ours, case = sides.pop("lanes"), f"no-op, best settings, fsync {appendfsync}, beside"
    return [
        Result("peers", f"{case} {name}", "tasks/s", ours, other, GOALS.get(name, AHEAD))
        for name, other in sides.items()
    ]
