"""Growth: the cost of an update as backlog, lanes, keys per update and queues grow, against the smallest of each.

The cost is the processor time of the worker and of Redis for append, fetch and settle. Each size has its own server and
worker. In a round as many updates are appended as are processed, at most half a backlog at a time, so the backlog keeps
its length.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice

from redis import Redis

from bench.load.updates import make_updates
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.rounds import alternate
from bench.measure.scale import CHATS, READY
from bench.measure.usage import cpu_s, server_cpu_s
from bench.systems.backlogs import BATCH, LanesSide, lane_message, worker
from bench.systems.worker_group import signal_all
from celery_lanes.protocol import Store
from celery_lanes.protocol.keys import LEASES

FLAT = Goal("ratio", "at most", 1.2)
THREE_KEYS = Goal("ratio", "at most", 1.5)
POOL = ("-P", "threads", "-c", "8", "--prefetch-multiplier", "4")
GROUP = "updates"
#: The backlog where another dimension grows.
BACKLOG = 5_000
#: Lanes of the backlog cases: even in the smallest, another update waits behind each one, whose wake-up is part of the
#: cost.
FEW = 100
EIGHT = 8


@dataclass(frozen=True)
class Size:
    """One combination of sizes, measured with its own server and worker."""

    name: str
    backlog: int = BACKLOG
    lanes: int = CHATS
    keys: int = 1
    queues: int = EIGHT


def run(harness: Harness) -> list[Result]:
    backlogs, lanes = harness.scale.backlogs, harness.scale.lanes
    longest = max(lanes)
    return [
        *_compare(harness, [Size(f"backlog of {backlog:,}", backlog=backlog, lanes=FEW) for backlog in backlogs]),
        *_compare(harness, [Size(f"{count:,} lanes", backlog=longest, lanes=count) for count in lanes]),
        *_compare(harness, [Size(f"{keys} key{'s' * (keys > 1)} per update", keys=keys) for keys in (1, 3)]),
        *_compare(
            harness, [Size(f"{queues} queue{'s' * (queues > 1)}", queues=queues) for queues in harness.scale.queues]
        ),
    ]


def _compare(harness: Harness, sizes: list[Size]) -> list[Result]:
    with ExitStack() as stack:
        fields = {size.name: stack.enter_context(field(harness, size)) for size in sizes}
        measured = alternate(harness.scale.rounds, {name: each.measure for name, each in fields.items()})
    base = Side(sizes[0].name, measured[sizes[0].name])
    return [
        Result(
            "growth",
            f"processor time for an update, {size.name}",
            "µs",
            Side("lanes", measured[size.name]),
            base,
            THREE_KEYS if size.keys > 1 else FLAT,
        )
        for size in sizes[1:]
    ]


@dataclass
class Field:
    """One size with its server and worker. `appended` counts its updates."""

    harness: Harness
    size: Size
    client: Redis
    child: BenchProcess
    appended: int = 0

    def measure(self) -> float:
        """Microseconds of processor time of worker and Redis per update."""
        taken, used_s, take = 0, 0.0, self.harness.scale.taken
        while taken < take:
            chunk = min(take - taken, self.size.backlog // 2)
            before_s = server_cpu_s([self.client])
            self.append(chunk)
            used_s += server_cpu_s([self.client]) - before_s
            done, done_s = self._work_off(chunk)
            taken, used_s = taken + done, used_s + done_s
        each_us = used_s / taken * 1e6
        self.harness.report(f"growth, {self.size.name}, {taken}: {each_us:,.0f} µs each")
        return each_us

    def append(self, count: int) -> None:
        """Appends updates of all lanes in turn; each further key of an update is a lane of its own."""
        store, size = Store(self.client), self.size
        rest = make_updates(count, size.lanes, first=1 + self.appended)
        while batch := list(islice(rest, BATCH)):
            store.append(
                [
                    lane_message(update, queues=size.queues, more_lanes=[f"key{n}:{chat}" for n in range(1, size.keys)])
                    for update in batch
                    for chat in [update["message"]["chat"]["id"]]
                ]
            )
        self.appended += count

    def _work_off(self, count: int) -> tuple[int, float]:
        """(updates, processor seconds) from the moment the worker may start until all leased messages are settled."""
        store, lanes = Store(self.client), LanesSide()
        before = lanes.left(self.client)
        signal_all([self.child], signal.SIGCONT)
        began_s = self._used_s()
        store.resume("group", GROUP, [f"{GROUP}.{n}" for n in range(self.size.queues)])
        until(lambda: lanes.left(self.client) <= before - count, [self.child], f"{count} more are settled")
        store.pause("group", GROUP)
        until(lambda: not self.client.exists(LEASES), [self.child], "all leased messages are settled")
        used_s = self._used_s() - began_s
        signal_all([self.child], signal.SIGSTOP)
        return before - lanes.left(self.client), used_s

    def _used_s(self) -> float:
        return cpu_s([self.child.pid]) + server_cpu_s([self.client])


@contextmanager
def field(harness: Harness, size: Size) -> Iterator[Field]:
    """A loaded backlog and a ready worker, which is stopped (SIGSTOP) except while it is measured."""
    with ExitStack() as stack:
        url = stack.enter_context(harness.server("growth"))
        client = stack.enter_context(emptied(url))
        Store(client).pause("group", GROUP)
        command = worker(LanesSide.app, url, *POOL)
        child = stack.enter_context(harness.child("growth-worker", *command, BENCH_QUEUES=str(size.queues)))
        until(lambda: child.has_printed(READY), [child], f"the worker for {size.name} is ready")
        stack.callback(signal_all, [child], signal.SIGCONT)
        signal_all([child], signal.SIGSTOP)
        made = Field(harness, size, client, child)
        client.config_set("appendfsync", "no")
        made.append(size.backlog)
        client.config_set("appendfsync", "always")
        yield made
