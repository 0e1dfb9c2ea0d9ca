"""countdown: tasks that wait for their time, beside stock Celery, which holds them in the memory of the worker.

Their time is later than the visibility timeout of stock Celery, after which it may deliver them again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from redis import Redis

from bench.apps.bot import STARTS
from bench.apps.endless import RELEASE_AFTER
from bench.load.updates import Update
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import Harness, emptied
from bench.measure.scale import QUEUES, READY
from bench.measure.usage import memory_mb
from bench.systems.backlogs import BATCH, LanesSide, Stock, lane_message, worker
from chatlanes.lanes.protocol.store import Store

POOL = ("-P", "threads", "-c", "8")
#: The lease, and the visibility timeout.
TIMEOUT_S = 5
ONCE = Goal("value", "at most", 0)
APPS = {"lanes": LanesSide.app, "stock": Stock.app}
#: Without a start for this long, no more are expected.
QUIET_S = 10.0


def run(harness: Harness) -> list[Result]:
    memory: dict[str, list[float]] = {name: [] for name in APPS}
    again: dict[str, list[float]] = {name: [] for name in APPS}
    for _ in range(harness.scale.rounds):
        for name in APPS:
            used, runs = _measure(harness, name)
            memory[name].append(used)
            again[name].append(runs)
            harness.report(f"countdown {name}: {used:.0f} MB, {runs} runs too many")
    case = f"{harness.scale.later:,} wait"
    sizes = Side("lanes", memory["lanes"]), Side("stock", memory["stock"])
    repeats = Side("lanes", again["lanes"]), Side("stock", again["stock"])
    return [
        Result("countdown", f"memory of the worker, {case}", "MB", *sizes),
        Result("countdown", f"runs too many, {case} past the timeout", "runs", *repeats, ONCE),
    ]


def _measure(harness: Harness, name: str) -> tuple[float, int]:
    """The memory of the worker while all wait, and how many runs there were too many."""
    scale, starts = harness.scale, harness.directory / f"countdown-{name}-{time.monotonic_ns()}"
    environment = {STARTS: str(starts), RELEASE_AFTER: str(TIMEOUT_S)}
    with harness.server(name) as url, emptied(url) as client:
        client.config_set("appendfsync", "no")
        command = [sys.executable, "-m", *worker(APPS[name], url, *POOL)]
        with harness.foreign(f"countdown-{name}", command, **environment) as child:
            until(lambda: child.has_printed(READY), [child], "the worker is ready")
            due_s = time.time() + scale.later_s
            updates = [
                {"update_id": n, "message": {"chat": {"id": n}}, "answered_at": 0.0} for n in range(1, scale.later + 1)
            ]
            (_schedule if name == "lanes" else _publish)(client, url, updates, due_s)
            time.sleep(max(due_s - time.time() - 1, 0))
            used = memory_mb(child.pid)
            until(lambda: _count(starts) >= scale.later, [child], f"{scale.later} have started")
            last, last_s = _count(starts), time.monotonic()
            while time.monotonic() - last_s < QUIET_S:
                time.sleep(1)
                if (now := _count(starts)) > last:
                    last, last_s = now, time.monotonic()
    return used, last - scale.later


def _count(starts: Path) -> int:
    return starts.read_bytes().count(b"\n") if starts.exists() else 0


def _schedule(client: Redis, _: str, updates: list[Update], due_s: float) -> None:
    store = Store(client)
    for update in updates:
        message = lane_message(update, "bench.start", queues=QUEUES)._replace(once=None)
        store.schedule(message, f"task {message.id}", "eta", at_ms=int(due_s * 1000))


def _publish(_: Redis, url: str, updates: list[Update], due_s: float) -> None:
    from bench.apps.stock_app import app, start

    with app.connection_for_write(url) as connection, app.amqp.Producer(connection) as one, one.batch(BATCH):
        for update in updates:
            start.apply_async((update,), producer=one, countdown=due_s - time.time())
