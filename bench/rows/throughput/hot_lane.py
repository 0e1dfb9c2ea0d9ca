"""One hot lane: all updates belong to one chat, so each is fetched, run and settled before the next; two workers."""

from __future__ import annotations

from contextlib import ExitStack

from redis import Redis

from bench.load.updates import make_updates
from bench.measure.backlog_rate import measure, until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import READY
from bench.systems.backlogs import LanesSide, worker

#: updates/s
GOAL = Goal("value", "at least", 400)
POOL = ("-P", "prefork", "-c", "1")


def run(harness: Harness) -> list[Result]:
    side = LanesSide()
    with harness.server("hot-lane") as url, emptied(url) as client, ExitStack() as stack:
        children = [
            stack.enter_context(harness.child(f"worker-{n}", *worker(side.app, url, *POOL, "-n", f"bench{n}@%h")))
            for n in (1, 2)
        ]
        for child in children:
            until(lambda child=child: child.has_printed(READY), children, f"{child.name} is ready")  # type: ignore[misc]
        rounds = [_measure(harness, client, url, children, number) for number in range(harness.scale.rounds)]
    case = f"all updates in one lane, two workers {' '.join(POOL)}"
    return [Result("hot lane", case, "updates/s", Side("lanes", rounds), goal=GOAL)]


def _measure(harness: Harness, client: Redis, url: str, children: list[BenchProcess], number: int) -> float:
    """The workers start while the backlog is still being loaded; this affects only the first tenth."""
    side, total = LanesSide(), harness.scale.hot
    side.load(client, url, make_updates(total, chats=1, first=1 + number * total))
    rate = measure(lambda: side.left(client), total, children)
    harness.report(f"hot lane, {total}: {rate:,.0f}/s")
    return rate
