"""Worker memory: a worker's memory after 100,000 updates (a million with --all), against its memory after 10,000.

Main process and children, with shared memory counted once. The backlog is refilled while the worker runs. The rounds
are five samples, a thousand updates apart, at the beginning and at the end of one worker's life. The memory of stock
Celery's worker after 10,000 updates is compared with ours, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from redis import Redis

from bench.load.updates import make_updates
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import CHATS
from bench.measure.usage import memory_mb
from bench.systems.backlogs import BacklogSide, LanesSide, Stock, worker

#: Leaves room for memory that the allocator keeps for reuse.
GOAL = Goal("ratio", "at most", 1.05)
#: A worker that does not get this far within a time limit has stalled.
STEP = 1_000
POOLS = (("-P", "prefork", "-c", "2"), ("-P", "threads", "-c", "8"))


def run(harness: Harness) -> list[Result]:
    return [line for pool in POOLS for line in _watch(harness, pool)]


def _watch(harness: Harness, pool: tuple[str, ...]) -> list[Result]:
    first, last, samples = harness.scale.worked_first, harness.scale.worked, harness.scale.rounds
    step = first // 10
    early = [first + step * number for number in range(samples)]
    late = [last - step * (samples - 1 - number) for number in range(samples)]
    sizes_mb = _sample(harness, LanesSide(), pool, (*early, *late))
    young, old = Side("lanes", sizes_mb[:samples]), Side("lanes", sizes_mb[samples:])
    stock, name = Side("stock", _sample(harness, Stock(), pool, early)), " ".join(pool)
    itself = Side(f"itself after {first:,}", young.rounds)
    return [
        Result("worker memory", f"{name}, after {last:,} updates", "MB", old, itself, GOAL),
        Result("worker memory", f"{name}, after {first:,} updates", "MB", young, stock),
    ]


def _sample(harness: Harness, side: BacklogSide, pool: tuple[str, ...], when: Sequence[int]) -> list[float]:
    """MB after each of these numbers of updates."""
    with ExitStack() as stack:
        url = stack.enter_context(harness.server("worker-memory"))
        client = stack.enter_context(emptied(url))
        client.config_set("appendfsync", "no")  # the disk is not measured
        child = stack.enter_context(harness.child("worker", *worker(side.app, url, *pool)))
        feed = BacklogFeed(client, url, side, child, when[-1])
        sizes_mb = [feed.memory_mb_after(done) for done in when]
    harness.report(
        f"{side.name} {' '.join(pool)}: {sizes_mb[0]:.1f} MB after {when[0]:,}, {sizes_mb[-1]:.1f} after {when[-1]:,}"
    )
    return sizes_mb


class BacklogFeed:
    """Keeps a backlog in front of the worker until `total` updates have been appended."""

    def __init__(self, client: Redis, url: str, side: BacklogSide, child: BenchProcess, total: int) -> None:
        self._client, self._url, self._side = client, url, side
        self._child, self._total, self._appended = child, total, 0

    def memory_mb_after(self, done: int) -> float:
        while (before := self._done()) < done:
            until(partial(self._has_done, min(before + STEP, done)), [self._child], f"{done} are settled")
        return memory_mb(self._child.pid)

    def _has_done(self, count: int) -> bool:
        return self._done() >= count

    def _done(self) -> int:
        left = self._side.left(self._client)
        more = min(self._total // 10, self._total - self._appended)
        if more and left < more:
            self._side.load(self._client, self._url, make_updates(more, CHATS, first=1 + self._appended))
            self._appended += more
            left += more
        return self._appended - left
