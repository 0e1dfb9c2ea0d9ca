"""One hot lane: all updates belong to one chat, so each is fetched, run and settled before the next; two workers."""

from __future__ import annotations

from contextlib import ExitStack

from redis import Redis

from bench.figures import Goal, Result, Side
from bench.pace import measure, until
from bench.scale import READY
from bench.sides import LanesSide, worker
from bench.stage import BenchProcess, Stage, emptied
from bench.updates import make_updates

#: updates/s
GOAL = Goal("value", "at least", 400)
POOL = ("-P", "prefork", "-c", "1")


def run(stage: Stage) -> list[Result]:
    side = LanesSide()
    with stage.server("hot-lane") as url, emptied(url) as client, ExitStack() as stack:
        children = [
            stack.enter_context(stage.child(f"worker-{n}", *worker(side.app, url, *POOL, "-n", f"bench{n}@%h")))
            for n in (1, 2)
        ]
        for child in children:
            until(lambda child=child: child.has_printed(READY), children, f"{child.name} is ready")  # type: ignore[misc]
        rounds = [_measure(stage, client, url, children, number) for number in range(stage.scale.rounds)]
    case = f"all updates in one lane, two workers {' '.join(POOL)}"
    return [Result("hot lane", case, "updates/s", Side("lanes", rounds), goal=GOAL)]


def _measure(stage: Stage, client: Redis, url: str, children: list[BenchProcess], number: int) -> float:
    """The workers start while the backlog is still being loaded; this affects only the first tenth."""
    side, total = LanesSide(), stage.scale.hot
    side.load(client, url, make_updates(total, chats=1, first=1 + number * total))
    rate = measure(lambda: side.left(client), total, children)
    stage.report(f"hot lane, {total}: {rate:,.0f}/s")
    return rate
