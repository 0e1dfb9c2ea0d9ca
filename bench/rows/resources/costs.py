"""Costs: processor time, Redis commands and bytes per update in each part, against stock Celery.

The kernel and Redis count them between 10 % and 95 % of a backlog, so start-up is excluded and a busy machine changes
little. Commands are those that a client sends; the work of scripts is in the processor time of Redis.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from redis import Redis

from bench.load import simulator
from bench.measure.backlog_rate import measure, until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.monitor import sent
from bench.measure.scale import CHATS
from bench.measure.usage import Meter, exchanged_bytes, server_cpu_s, tree_cpu_s
from bench.rows.delivery.intake import Way
from bench.systems.backlogs import LanesSide, Stock
from bench.systems.worker_group import WorkerGroup, worker_group
from chatlanes_sandbox.simulator import start

HALF = Goal("ratio", "at most", 0.5)
POOL = ("-P", "prefork", "-c", "2", "--prefetch-multiplier", "4")
#: part -> unit, in the order of the table
WORKER = {
    "the worker's main process": "ms",
    "the worker's children": "ms",
    "Redis, for the worker": "ms",
    "commands of the worker": "commands",
    "bytes between worker and Redis": "bytes",
}
POLLER = {
    "the poller": "ms",
    "Redis, for the poller": "ms",
    "commands of the poller": "commands",
    "bytes between poller and Redis": "bytes",
}

#: part -> values, one per round
Found = dict[str, list[float]]


def run(harness: Harness) -> list[Result]:
    found: dict[str, Found] = {"lanes": defaultdict(list), "stock": defaultdict(list)}
    with worker_group(harness, LanesSide(), [POOL]) as lanes, worker_group(harness, Stock(), [POOL]) as stock:
        for _ in range(harness.scale.rounds):
            for each in (lanes, stock):
                _keep(found[each.side.name], _worker(harness, each))
    with harness.server("costs") as url, start(simulator.TOKEN) as telegram:
        loop = ("bench.apps.stock_poller", "--api", f"{telegram.url}/bot{telegram.token}", "--broker", url)
        ways = (
            Way(harness, url, telegram, "lanes", ("poller",), LanesSide().left),
            Way(harness, url, telegram, "stock", loop, Stock().left),
        )
        for _ in range(harness.scale.rounds):
            for way in ways:
                _keep(found[way.name], _poller(harness, way))
    return [
        Result(
            "costs",
            f"{what}, for an update",
            unit,
            Side("lanes", found["lanes"][what]),
            Side("stock", found["stock"][what]),
            HALF,
        )
        for what, unit in {**WORKER, **POLLER}.items()
    ]


def _keep(found: Found, measured: dict[str, float]) -> None:
    for what, value in measured.items():
        found[what].append(value)


@dataclass(frozen=True)
class Used:
    """The counters at one moment."""

    main_s: float
    children_s: float
    server_s: float
    exchanged: int


def _counters(child: BenchProcess, client: Redis) -> Callable[[], Used]:
    return lambda: Used(*tree_cpu_s(child.pid), server_cpu_s([client]), exchanged_bytes(client))


def _worker(harness: Harness, of: WorkerGroup) -> dict[str, float]:
    size, counted = harness.scale.costed, harness.scale.counted
    [child] = of.children
    of.load(size, CHATS)
    meter = Meter(lambda: of.side.left(of.client), size, _counters(child, of.client))
    with of.running():
        measure(meter, size, [child])
    done, first, second = meter.between()
    of.load(counted, CHATS)
    with sent(of.url, of.client) as commands, of.running():
        until(lambda: of.side.left(of.client) == 0, [child], f"{counted} are settled")
    harness.report(f"costs, worker, {of.side.name}: {dict(commands.commands)} for {counted}")
    return {
        "the worker's main process": (second.main_s - first.main_s) / done * 1000,
        "the worker's children": (second.children_s - first.children_s) / done * 1000,
        "Redis, for the worker": (second.server_s - first.server_s) / done * 1000,
        "commands of the worker": commands.total / counted,
        "bytes between worker and Redis": (second.exchanged - first.exchanged) / done,
    }


def _poller(harness: Harness, way: Way) -> dict[str, float]:
    total, counted = harness.scale.intake[way.name], harness.scale.counted
    with emptied(way.url) as client, way.running(total) as child:
        meter = Meter(lambda: total - way.arrived(client), total, _counters(child, client))
        measure(meter, total, [child])
        with sent(way.url, client) as commands:
            way.push(counted, first=total + 1)
            until(lambda: way.arrived(client) == total + counted, [child], f"{counted} more have arrived")
    done, first, second = meter.between()
    harness.report(f"costs, poller, {way.name}: {dict(commands.commands)} for {counted}")
    return {
        "the poller": (second.main_s - first.main_s) / done * 1000,
        "Redis, for the poller": (second.server_s - first.server_s) / done * 1000,
        "commands of the poller": commands.total / counted,
        "bytes between poller and Redis": (second.exchanged - first.exchanged) / done,
    }
