"""The ordered recipe: no-op tasks in lanes, against hash-routed stock queues, each consumed by one slot of one worker.

Both keep the order of a chat as long as no worker dies. Each side is measured in its fastest setting.
"""

from __future__ import annotations

from bench.measure.figures import Goal, Result
from bench.measure.harness import Harness
from bench.measure.scale import CHATS, QUEUES
from bench.systems.backlogs import LanesSide, Recipe
from bench.systems.contenders import WORKER_OPTIONS, CeleryContender, WorkerOptions, compare

GOAL = Goal("ratio", "at least", 5)


def _divided(count: int) -> WorkerOptions:
    """The queues divided among `count` workers with one slot each. solo is the fastest pool for this."""
    shares = [",".join(f"updates.{queue}" for queue in range(number, QUEUES, count)) for number in range(count)]
    options = ("-P", "solo", "--prefetch-multiplier", "16")
    return f"{QUEUES} queues, {count} × -P solo", [(*options, "-Q", share) for share in shares]


def run(harness: Harness) -> list[Result]:
    contenders = [
        CeleryContender(LanesSide(), WORKER_OPTIONS),
        CeleryContender(Recipe(), (_divided(QUEUES), _divided(2))),
    ]
    with harness.server("recipe") as url:
        ours, recipe = compare(harness, url, contenders).values()
    return [Result("recipe", f"no-op, {CHATS} chats, in order", "tasks/s", ours, recipe, GOAL)]
