"""Intake: how fast updates get from getUpdates durably into Redis, with the real poller and with two stock loops.

All updates wait at the simulator before the poller starts; the rate is taken between 10 % and 95 % of them, counted by
arrivals in Redis. The simulator and Redis use the same processors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redis import Redis

from bench.load import simulator
from bench.load.updates import make_updates
from bench.measure.backlog_rate import measure
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.rounds import alternate
from bench.measure.scale import CHATS
from bench.systems.backlogs import LanesSide, Stock
from chatlanes_sandbox.simulator import Simulator, start

#: updates/s
GOAL = (Goal("value", "at least", 8_000), Goal("ratio", "at least", 4.5))
PUSH = 1_000


def run(harness: Harness) -> list[Result]:
    with harness.server("intake") as url, start(simulator.TOKEN) as telegram:
        loop = ("bench.apps.stock_poller", "--api", f"{telegram.url}/bot{telegram.token}", "--broker", url)
        ways = (
            Way(harness, url, telegram, "lanes", ("poller",), LanesSide().left),
            Way(harness, url, telegram, "stock", loop, Stock().left),
            Way(harness, url, telegram, "batched", (*loop, "--batched"), Stock().left),
        )
        measured = alternate(harness.scale.rounds, {way.name: way.measure for way in ways})
    ours = Side("lanes", measured["lanes"], "chatlanes poller")
    single = Side("stock", measured["stock"], "one apply_async per update")
    batched = Side("stock", measured["batched"], "apply_async in kombu's batch")
    return [
        Result("intake", "beside one apply_async per update", "updates/s", ours, single, GOAL),
        Result("intake", "beside batched apply_async", "updates/s", ours, batched),
    ]


@dataclass(frozen=True)
class Way:
    """One way from the simulator into Redis: `command` are arguments of `python -m`, `arrived` counts the arrivals."""

    harness: Harness
    url: str
    telegram: Simulator
    name: str
    command: tuple[str, ...]
    arrived: Callable[[Redis], int]

    def measure(self) -> float:
        """Updates per second."""
        total = self.harness.scale.intake[self.name]
        with emptied(self.url) as client, self.running(total) as child:
            rate = measure(lambda: total - self.arrived(client), total, [child])
        self.harness.report(f"intake {self.name}, {total}: {rate:,.0f}/s")
        return rate

    @contextmanager
    def running(self, total: int) -> Iterator[BenchProcess]:
        """Starts the poller with `total` updates waiting. Ids start at 1 each time: Redis has been emptied."""
        self.telegram.reset()
        self.push(total)
        settings = poller_settings(self.telegram, self.url)
        with self.harness.child(f"{self.name}-poller", *self.command, **settings) as child:
            yield child

    def push(self, count: int, first: int = 1) -> None:
        waiting = list(make_updates(count, CHATS, first=first))
        for at in range(0, count, PUSH):
            self.telegram.push(*waiting[at : at + PUSH])


def poller_settings(telegram: Simulator, url: str) -> dict[str, str]:
    """Settings of the real poller and worker: addresses only, and no limit on the backlog."""
    return {
        "BOT_TOKEN": telegram.token,
        "BOT_API_URL": telegram.url,
        "REDIS_URL": url,
        "MAX_PENDING": "1000000",
    }
