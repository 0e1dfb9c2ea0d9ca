"""Scaling: the same backlog processed by 1, 2, 4 and 8 workers on one Redis, and by 4 on two.

Each rate is compared with the prediction of bench/scaling from the processor time of one worker and its Redis.
It shows no more than this machine can do: additional workers share the same processors.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import psutil
from redis import Redis

from bench.load.updates import make_updates
from bench.measure.backlog_rate import measure, until
from bench.measure.figures import Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import CHATS, QUEUES, READY
from bench.measure.usage import cpu_s, server_cpu_s
from bench.scaling.model import Costs, rate
from bench.systems.backlogs import LanesSide, worker
from celery_lanes.protocol import Kind, Leased, Store

POOL = ("-P", "threads", "-c", "8", "--prefetch-multiplier", "4")
#: (workers, Redis servers); the others are predicted from the first.
SIZES = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2))
GROUP = "updates"
QUEUE_NAMES = [f"{GROUP}.{n}" for n in range(QUEUES)]
#: For the cost of a call's journal: calls, the size of a stored result, calls at a time.
CALLS, OUTCOME, AT_ONCE = 1_000, b"x" * 300, 8
LEASE_MS = 600_000

#: The costs of one worker. bench/scaling/__main__.py finds them in the JSON by these names.
COSTS = {
    "worker_s": "a worker, for an update",
    "turn_s": "Redis, for its turns",
    "append_s": "Redis, for its append",
    "call_s": "Redis, for the journal of a call",
}


@dataclass(frozen=True)
class Measured:
    """One backlog: updates/s, and processor time per update."""

    rate: float
    costs: Costs


def run(harness: Harness) -> list[Result]:
    found: dict[tuple[int, int], list[Measured]] = {size: [] for size in SIZES[: harness.scale.sizes]}
    for _ in range(harness.scale.rounds):
        for workers, servers in found:
            found[workers, servers].append(_measure(harness, workers, servers))
    alone = [each.costs for each in found[SIZES[0]]]
    lines = [_line(size, [each.rate for each in rounds], alone) for size, rounds in found.items()]
    return lines + [
        Result(
            "scaling", f"processor time of {part}", "µs", Side("lanes", [getattr(each, name) * 1e6 for each in alone])
        )
        for name, part in COSTS.items()
    ]


def _line(size: tuple[int, int], rates: list[float], alone: list[Costs]) -> Result:
    workers, servers = size
    predicted = [rate(costs, psutil.cpu_count() or 1, workers, servers) for costs in alone]
    case = f"{workers} worker{'s' * (workers > 1)}, {servers} Redis"
    return Result("scaling", case, "updates/s", Side("lanes", rates), Side("predicted", predicted))


def _measure(harness: Harness, workers: int, servers: int) -> Measured:
    each = harness.scale.scaled // servers
    with ExitStack() as stack:
        urls = [stack.enter_context(harness.server(f"redis{n}")) for n in range(servers)]
        clients = [stack.enter_context(emptied(url)) for url in urls]
        before_s = server_cpu_s(clients)
        for client, url in zip(clients, urls, strict=True):
            Store(client).pause("group", GROUP)
            LanesSide().load(client, url, make_updates(each, CHATS))
        append_s = (server_cpu_s(clients) - before_s) / (each * servers)
        children = _workers(harness, stack, list(islice(cycle(urls), workers)))
        return _work_off(harness, clients, children, each * servers, append_s)


def _workers(harness: Harness, stack: ExitStack, urls: list[str]) -> list[BenchProcess]:
    """Starts the workers and waits until all are ready."""
    children = [
        stack.enter_context(harness.child(f"worker-{n}", *worker(LanesSide.app, url, *POOL, "-n", f"bench{n}@%h")))
        for n, url in enumerate(urls)
    ]
    for child in children:
        until(lambda child=child: child.has_printed(READY), children, f"{child.name} is ready")  # type: ignore[misc]
    return children


def _work_off(
    harness: Harness, clients: list[Redis], children: list[BenchProcess], total: int, append_s: float
) -> Measured:
    """All workers start at the same time, with the whole backlog loaded."""
    pids, side = [child.pid for child in children], LanesSide()
    servers_s, workers_s, began_s = server_cpu_s(clients), cpu_s(pids), time.monotonic()
    for client in clients:
        Store(client).resume("group", GROUP, QUEUE_NAMES)
    measure(lambda: sum(side.left(client) for client in clients), total, children)
    reached = total / (time.monotonic() - began_s)
    costs = Costs(
        worker_s=(cpu_s(pids) - workers_s) / total,
        turn_s=(server_cpu_s(clients) - servers_s) / total,
        append_s=append_s,
        call_s=_call_s(clients[0]),
    )
    harness.report(f"{len(children)} workers, {len(clients)} Redis, {total}: {reached:,.0f}/s")
    return Measured(reached, costs)


def _call_s(client: Redis) -> float:
    """Processor time of Redis for the journal entries before and after one Bot API call."""
    store = Store(client)
    store.pause("group", GROUP)  # the workers are still running
    LanesSide().load(client, "", make_updates(CALLS, CHATS, first=10_000_000))
    store.resume("group", GROUP)
    leased = store.turn(QUEUE_NAMES, holder="bench", lease_ms=LEASE_MS, room=CALLS).leased
    before_s = server_cpu_s([client])
    with ThreadPoolExecutor(AT_ONCE) as threads:  # concurrent, as from workers: one fsync serves several commands
        list(threads.map(lambda message: _note(store, message), leased))
    return (server_cpu_s([client]) - before_s) / len(leased)


def _note(store: Store, message: Leased) -> None:
    what: dict[str, Any] = {"position": "1", "what": "sendMessage:0123456789abcdef"}
    store.begin(message.id, message.fence, lease_ms=LEASE_MS, **what)
    store.end(message.id, message.fence, **what, kind=Kind.DONE, outcome=OUTCOME)
