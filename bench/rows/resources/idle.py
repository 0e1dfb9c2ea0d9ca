"""Idle: what a worker with eight queues uses when there is nothing to do, against stock Celery with the same queues.

Ours is `chatlanes worker` with its usual options; both send events. Both are idle at the same time, each on its own
server. Commands are those that the worker sends, including its sweeps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from redis import Redis

from bench.load import simulator
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.monitor import sent
from bench.measure.scale import QUEUES
from bench.measure.usage import idle_cpu_s

CPU_GOAL = Goal("ratio", "at most", 1.2)
#: commands/s
COMMANDS_GOAL = Goal("value", "at most", 3)
POOL = ("-P", "prefork", "-c", "2")
READY = " ready."
#: After its start a worker looks for other workers, and its children open connections.
SETTLED_S = 10.0


def run(harness: Harness) -> list[Result]:
    with worker(harness, "lanes", "tasks") as lanes, worker(harness, "stock", "bench.apps.recipe_app") as stock:
        time.sleep(min(SETTLED_S, harness.scale.idle_s))
        for _ in range(harness.scale.rounds):
            lanes.watch_with(stock)
    case = f"1 worker {' '.join(POOL)}, {QUEUES} queues"
    return [
        Result(
            "idle",
            f"{case}, processor time",
            "ms/s",
            Side("lanes", lanes.used_ms),
            Side("stock", stock.used_ms),
            CPU_GOAL,
        ),
        Result(
            "idle",
            f"{case}, commands",
            "commands/s",
            Side("lanes", lanes.commands),
            Side("stock", stock.commands),
            COMMANDS_GOAL,
        ),
    ]


@dataclass
class IdleWorker:
    """`used_ms` and `commands` are per second, one value per round."""

    harness: Harness
    name: str
    url: str
    client: Redis
    child: BenchProcess
    used_ms: list[float] = field(default_factory=list)
    commands: list[float] = field(default_factory=list)

    def watch_with(self, other: IdleWorker) -> None:
        with self._watched(), other._watched():
            time.sleep(self.harness.scale.idle_s)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with sent(self.url, self.client) as counted:
            before_s, began_s = idle_cpu_s(self.child.pid), time.monotonic()
            yield
            used_s, length_s = idle_cpu_s(self.child.pid) - before_s, time.monotonic() - began_s
        self.child.check()
        self.used_ms.append(used_s / length_s * 1000)
        self.commands.append(counted.total / length_s)
        figures = f"{self.used_ms[-1]:.1f} ms/s, {self.commands[-1]:.2f} commands/s"
        self.harness.report(f"idle {self.name}: {figures} {dict(counted.commands)}")


@contextmanager
def worker(harness: Harness, name: str, app: str) -> Iterator[IdleWorker]:
    settings = {"BOT_TOKEN": simulator.TOKEN, "BOT": "bench.apps.bot:do_nothing", "QUEUES": str(QUEUES)}
    with ExitStack() as stack:
        url = stack.enter_context(harness.server(f"idle-{name}"))
        client = stack.enter_context(emptied(url))
        command = [sys.executable, "-m", "celery", "-A", app, "-b", url, "worker", "-l", "INFO", *POOL, "-E"]
        child = stack.enter_context(harness.foreign(f"{name}-idle", command, REDIS_URL=url, **settings))
        until(lambda: child.has_printed(READY), [child], f"{name} is ready")
        yield IdleWorker(harness, name, url, client, child)
