"""Peers: a backlog of no-op tasks, against stock Celery and five other queues on Redis, each at its best settings.

All of them get the same updates on the same server, with the appendfsync policy of the case. Lanes keep each chat in
order and lose nothing; none of the others keeps an order, and some lose the tasks that a dead worker held.
"""

from __future__ import annotations

from bench.contenders import CREWS, CeleryContender, Contender, race
from bench.figures import Goal, Result
from bench.peers import PEERS
from bench.sides import LanesSide, Stock
from bench.stage import Stage

GOALS = {"stock": Goal("ratio", "at least", 5)}
AHEAD = Goal("ratio", "at least", 1)


def run(stage: Stage) -> list[Result]:
    with stage.server("peers") as url:
        return [line for how in stage.scale.fsyncs for line in _lines(stage, url, how)]


def _lines(stage: Stage, url: str, appendfsync: str) -> list[Result]:
    contenders: list[Contender] = [CeleryContender(LanesSide(), CREWS), CeleryContender(Stock(), CREWS), *PEERS]
    sides = race(stage, url, contenders, appendfsync)
    ours, case = sides.pop("lanes"), f"no-op, best settings, fsync {appendfsync}, beside"
    return [
        Result("peers", f"{case} {name}", "tasks/s", ours, other, GOALS.get(name, AHEAD))
        for name, other in sides.items()
    ]
