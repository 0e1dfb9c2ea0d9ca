"""Latency: an idle system, updates at random moments; the time from the answer to getUpdates to the handler's start.

The clock starts when the simulator sends the update, so the HTTP answer is included on both sides. Lanes: simulator,
chatlanes poller, chatlanes worker with the bench's bot. Stock: simulator, a loop of getUpdates and apply_async, a
Celery worker whose task does the same as the bot. Both workers send events, as chatlanes' does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.apps.bot import STARTS
from bench.load import simulator
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side, percentile
from bench.measure.harness import BenchProcess, Harness
from bench.measure.scale import CHATS
from bench.rows.delivery.intake import poller_settings
from bench.systems.backlogs import worker
from chatlanes_sandbox.simulator import Simulator

POOLS = {
    "prefork": ("-P", "prefork", "-c", "2"),
    "threads": ("-P", "threads", "-c", "8"),
    "gevent": ("-P", "gevent", "-c", "100"),
    "solo": ("-P", "solo"),
}
#: ms, at most; no slower than stock
MEDIAN_GOAL = (Goal("value", "at most", 3), Goal("ratio", "at most", 1))
P99_GOAL = (Goal("value", "at most", 15), Goal("ratio", "at most", 1))
#: Updates before the first round: the first tasks of a worker import modules and open connections.
FIRST = 20


def run(harness: Harness) -> list[Result]:
    with chain(harness, "lanes", "poller") as lanes, chain(harness, "stock", "bench.apps.stock_poller") as stock:
        return [
            line for pool in list(POOLS)[: harness.scale.pools] for line in _measure_pool(harness, pool, lanes, stock)
        ]


@dataclass
class Chain:
    """One side without its worker. Its handlers write to `starts`."""

    name: str
    url: str
    telegram: Simulator
    starts: Path
    children: list[BenchProcess]

    def waits_ms(self, rate: float, count: int, seed: int) -> list[float]:
        """The waiting time of each of `count` updates, from the answer to its handler's start."""
        before = self._started()
        self.telegram.stream(chats=CHATS, rate=rate, total=count, seed=seed)
        until(lambda: self._started() >= before + count, self.children, f"{self.name}: {count} handlers have started")
        return [float(line) for line in self.starts.read_text().splitlines()[before:]]

    def _started(self) -> int:
        return self.starts.read_bytes().count(b"\n")


@contextmanager
def chain(harness: Harness, name: str, poller: str) -> Iterator[Chain]:
    starts = harness.directory / f"{name}.starts"
    starts.touch()
    with ExitStack() as stack:
        url = stack.enter_context(harness.server(name))
        telegram = stack.enter_context(simulator.start())
        own = ("--api", f"{telegram.url}/bot{telegram.token}", "--broker", url, "--task", "bench.start")
        command = (poller, *(own if name == "stock" else ()))
        child = stack.enter_context(harness.child(f"{name}-poller", *command, **poller_settings(telegram, url)))
        yield Chain(name, url, telegram, starts, [child])


def _measure_pool(harness: Harness, pool: str, *chains: Chain) -> list[Result]:
    apps = {"lanes": "tasks", "stock": "bench.apps.stock_app"}
    with ExitStack() as stack:
        for side in chains:
            command = worker(apps[side.name], side.url, *POOLS[pool], "-E")
            settings = {
                **poller_settings(side.telegram, side.url),
                "BOT": "bench.apps.bot:handle",
                STARTS: str(side.starts),
            }
            child = stack.enter_context(harness.child(f"{side.name}-worker", *command, **settings))
            side.children = [side.children[0], child]
            side.waits_ms(200, FIRST, seed=0)
        return [line for rate in harness.scale.arrivals for line in _measure_rate(harness, pool, rate, *chains)]


def _measure_rate(harness: Harness, pool: str, rate: int, *chains: Chain) -> list[Result]:
    count = harness.scale.arrivals[rate]
    medians: dict[str, list[float]] = {side.name: [] for side in chains}
    slowest: dict[str, list[float]] = {side.name: [] for side in chains}
    for seed in range(harness.scale.rounds):
        for side in chains:
            waits_ms = side.waits_ms(rate, count, seed)
            medians[side.name].append(median(waits_ms))
            slowest[side.name].append(percentile(waits_ms, 99))
            harness.report(
                f"{pool}, {rate}/s, {side.name}: {medians[side.name][-1]:.1f} ms, p99 {slowest[side.name][-1]:.1f}"
            )
    case = f"{' '.join(POOLS[pool])}, {rate}/s"
    return [
        Result("latency", f"{case}, median", "ms", *_sides(medians), MEDIAN_GOAL),
        Result("latency", f"{case}, p99", "ms", *_sides(slowest), P99_GOAL),
    ]


def _sides(measured: dict[str, list[float]]) -> tuple[Side, Side]:
    return Side("lanes", measured["lanes"]), Side("stock", measured["stock"])
