"""countdown: tasks that wait for their time, beside stock Celery, which holds them in the memory of the worker.

Memory is measured with the default visibility timeout, an hour. How often tasks run is measured with two workers and a
countdown of three visibility timeouts: kombu delivers again what a worker has not acknowledged for that long, and a
task that waits for its time is not acknowledged. By default kombu looks for such tasks 36 times in a timeout (every
100 s); here it looks ten times.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import Redis

from bench.apps.endless import CHECK_EVERY, RELEASE_AFTER
from bench.apps.slow_chat import STARTS
from bench.load.updates import Update
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import QUEUES, READY
from bench.measure.usage import memory_mb
from bench.systems.backlogs import BATCH, LanesSide, Stock, lane_message, worker
from celery_lanes.protocol import Store

POOL = ("-P", "threads", "-c", "8")
WORKERS = 2
#: Without a start for this long, no more are expected.
QUIET_S = 10.0
NONE, ONCE = Goal("value", "at most", 0), Goal("value", "at most", 1)
SIDES = (LanesSide(), Stock())

Rounds = dict[str, list[float]]


def run(harness: Harness) -> list[Result]:
    memory, more, runs = _rounds(), _rounds(), _rounds()
    for _ in range(harness.scale.rounds):
        for side in SIDES:
            memory[side.name].append(_memory_mb(harness, side))
            counts = _runs(harness, side)
            more[side.name].append(100 * sum(count > 1 for count in counts.values()) / harness.scale.repeated)
            runs[side.name].append(counts.total() / harness.scale.repeated)
            seen = dict(Counter(counts.values()))
            harness.report(f"countdown {side.name}: {memory[side.name][-1]:.0f} MB; runs -> tasks: {seen}")
    timeout_s = harness.scale.timeout_s
    case = f"{harness.scale.repeated:,} tasks, countdown {3 * timeout_s} s"
    how = {"lanes": f"lease {timeout_s} s", "stock": f"visibility timeout {timeout_s} s"}
    return [
        Result("countdown", f"memory of the worker, {harness.scale.later:,} wait", "MB", *_sides(memory)),
        Result("countdown", f"{case}, ran twice or more", "%", *_sides(more, how), NONE),
        Result("countdown", f"{case}, runs of each", "runs", *_sides(runs, how), ONCE),
    ]


def _rounds() -> Rounds:
    return {side.name: [] for side in SIDES}


def _sides(rounds: Rounds, how: Mapping[str, str] | None = None) -> tuple[Side, Side]:
    lanes, stock = (Side(side.name, rounds[side.name], (how or {}).get(side.name, "")) for side in SIDES)
    return lanes, stock


def _memory_mb(harness: Harness, side: LanesSide | Stock) -> float:
    """The memory of a worker a second before the tasks are due."""
    with harness.server(f"later-{side.name}") as url, emptied(url) as client:
        client.config_set("appendfsync", "no")
        with _workers(harness, side, url, 1, {}) as [child]:
            due_s = time.time() + harness.scale.later_s
            _publish(side, client, url, harness.scale.later, due_s)
            time.sleep(max(due_s - time.time() - 1, 0))
            return memory_mb(child.pid)


def _runs(harness: Harness, side: LanesSide | Stock) -> Counter[str]:
    """How often each task ran, with a countdown of three timeouts."""
    count, timeout_s = harness.scale.repeated, harness.scale.timeout_s
    starts = harness.directory / f"countdown-{side.name}-{time.monotonic_ns()}"
    settings = {STARTS: str(starts), RELEASE_AFTER: str(timeout_s), CHECK_EVERY: str(max(timeout_s // 10, 1))}
    with (
        harness.server(f"again-{side.name}") as url,
        emptied(url) as client,
        _workers(harness, side, url, WORKERS, settings) as children,
    ):
        due_s = time.time() + 3 * timeout_s
        _publish(side, client, url, count, due_s)
        time.sleep(max(due_s - time.time(), 0))
        until(lambda: len(_started(starts)) >= count, children, f"{count} have started")
        last, last_s = 0, time.monotonic()
        while time.monotonic() - last_s < QUIET_S:
            time.sleep(1)
            if (now := _started(starts).total()) > last:
                last, last_s = now, time.monotonic()
    return _started(starts)


def _started(starts: Path) -> Counter[str]:
    lines = starts.read_text().splitlines() if starts.exists() else []
    return Counter(line.partition(" ")[0] for line in lines)


@contextmanager
def _workers(
    harness: Harness, side: LanesSide | Stock, url: str, count: int, settings: dict[str, str]
) -> Iterator[list[BenchProcess]]:
    with ExitStack() as stack:
        children = []
        for number in range(count):
            name = f"countdown{number}"
            command = [sys.executable, "-m", *worker(side.app, url, *POOL, "-n", f"{name}@%h")]
            children.append(stack.enter_context(harness.foreign(f"{name}-{side.name}", command, **settings)))
        until(lambda: all(child.has_printed(READY) for child in children), children, "the workers are ready")
        yield children


def _publish(side: LanesSide | Stock, client: Redis, url: str, count: int, due_s: float) -> None:
    """Each task is of a chat of its own."""
    updates = ({"update_id": n, "message": {"chat": {"id": n}}} for n in range(1, count + 1))
    if isinstance(side, LanesSide):
        store = Store(client)
        for update in updates:
            _schedule(store, update, due_s)
        return
    from bench.apps.stock_app import app, hold

    with app.connection_for_write(url) as connection, app.amqp.Producer(connection) as one, one.batch(BATCH):
        for update in updates:
            hold.apply_async((update,), producer=one, countdown=due_s - time.time())


def _schedule(store: Store, update: Update, due_s: float) -> None:
    message = lane_message(update, "bench.hold", queues=QUEUES)._replace(once=None)
    store.schedule(message, f"task {message.id}", "eta", at_ms=int(due_s * 1000))
