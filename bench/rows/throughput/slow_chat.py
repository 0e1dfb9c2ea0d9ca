"""One slow chat among 500: waiting time of the other chats, against the same without the slow chat, and the recipe.

Updates of random chats arrive at random moments. The slow chat sends one update a second in addition, and its handler
takes one second. Both sides have eight slots. The clock starts when the update is published.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.apps.slow_chat import SLOW_CHAT, SLOW_S, STARTS
from bench.load.updates import Update, make_update
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side, percentile
from bench.measure.harness import Harness
from bench.measure.scale import CHATS, QUEUES
from bench.systems.backlogs import LanesSide, Recipe, chat_queue, lane_message
from bench.systems.worker_group import WorkerGroup, worker_group
from celery_lanes.protocol import Store

GOAL = Goal("ratio", "at most", 1.1)
#: updates/s of all other chats together
RATE = 100
OURS = ("-P", "threads", "-c", "8")
RECIPE = ("-P", "solo", "--prefetch-multiplier", "1")

Publish = Callable[[Update], object]


def run(harness: Harness) -> list[Result]:
    starts = {side.name: harness.directory / f"{side.name}.starts" for side in (LanesSide, Recipe)}
    recipes = [(*RECIPE, "-Q", f"updates.{number}") for number in range(QUEUES)]
    environment = {name: {STARTS: str(path)} for name, path in starts.items()}
    with (
        worker_group(harness, LanesSide(), [OURS], environment[LanesSide.name]) as lanes,
        worker_group(harness, Recipe(), recipes, environment[Recipe.name]) as recipe,
    ):
        ours = SlowChatSide(lanes, starts[LanesSide.name], _append(lanes))
        theirs = SlowChatSide(recipe, starts[Recipe.name], _apply(recipe))
        for seed in range(harness.scale.rounds + 1):  # the first round opens connections and is not counted
            for side in (ours, theirs):
                for slow in (False, True):
                    side.round(slow, seed, harness.scale.slow_chat_s if seed else 1.0)
    return _lines(ours, theirs)


def _lines(ours: SlowChatSide, theirs: SlowChatSide) -> list[Result]:
    case = f"p99 of the others, {RATE}/s"
    mine = Side("lanes", ours.p99_ms[True], "one slow chat")
    recipe = Side("hash-routed queues", theirs.p99_ms[True], "one slow chat")
    calm = Side("lanes without a slow chat", ours.p99_ms[False])
    recipe_calm = Side("hash-routed queues without a slow chat", theirs.p99_ms[False])
    return [
        Result("slow chat", f"{case}, beside no slow chat", "ms", mine, calm, GOAL),
        Result("slow chat", f"{case}, beside the recipe", "ms", mine, recipe),
        Result("slow chat", f"{case}, the recipe beside itself", "ms", recipe, recipe_calm),
    ]


@dataclass
class SlowChatSide:
    """One side: `p99_ms` has the values of its rounds, with and without the slow chat."""

    workers: WorkerGroup
    starts: Path
    publish: Publish
    p99_ms: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})

    def round(self, slow: bool, seed: int, length_s: float) -> None:
        """Runs one round; the round with seed 0 is not recorded."""
        self.starts.write_text("")
        plan = list(_plan(slow, seed, length_s, next(self.workers.first)))
        with self.workers.running():
            began_s = time.monotonic()
            for due_s, update in plan:
                time.sleep(max(0.0, began_s + due_s - time.monotonic()))
                update["answered_at"] = f"{time.monotonic():017.6f}"
                self.publish(update)
            until(lambda: self._started() >= len(plan), self.workers.children, f"{len(plan)} handlers have started")
            until(lambda: not self.workers.side.left(self.workers.client), self.workers.children, "all are settled")
        if not seed:
            return
        lines = (line.split() for line in self.starts.read_text().splitlines())
        waits_ms = [float(waited) for chat, waited in lines if int(chat) != SLOW_CHAT]
        self.p99_ms[slow].append(percentile(waits_ms, 99))
        name = f"{self.workers.side.name}, {'one slow chat' if slow else 'none slow'}"
        self.workers.harness.report(f"{name}: p99 of the others {self.p99_ms[slow][-1]:,.1f} ms of {len(waits_ms)}")

    def _started(self) -> int:
        return self.starts.read_bytes().count(b"\n")


def _plan(slow: bool, seed: int, length_s: float, first: int) -> Iterator[tuple[float, Update]]:
    """(seconds from the start, update), in order. The other chats' updates are the same with and without the slow
    chat.
    """
    chance, due_s, next_slow_s = random.Random(seed), 0.0, 0.0
    for number in range(round(length_s * RATE)):
        due_s += chance.expovariate(RATE)
        while slow and next_slow_s <= due_s:
            yield next_slow_s, make_update(first + 500_000 + round(next_slow_s), SLOW_CHAT)
            next_slow_s += SLOW_S
        yield due_s, make_update(first + number, 1001 + chance.randrange(CHATS - 1))


def _append(workers: WorkerGroup) -> Publish:
    store = Store(workers.client)
    return lambda update: store.append([lane_message(update, "bench.chat")])


def _apply(workers: WorkerGroup) -> Publish:
    from bench.apps.recipe_app import app, chat

    producer = app.amqp.Producer(app.connection_for_write(workers.url))
    return lambda update: chat.apply_async((update,), producer=producer, queue=chat_queue(update))
