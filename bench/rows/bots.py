"""Whole bots on one simulator: poller and worker with lanes in Redis, beside bots that poll and keep updates in memory.

`waits`: a handler that waits 50 ms, 500 at a time. `computes`: one that takes 5 ms of a processor. Each side has
started and is frozen while the updates are put into the simulator, which runs on the same processors and answers all
sides alike, 100 updates at a time; what it takes of them is told.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench import ondemand, simulator
from bench.figures import Goal, Result, Side
from bench.pace import measure, until
from bench.rounds import alternate
from bench.rows.intake import PUSH, poller_settings
from bench.scale import CHATS
from bench.stage import Stage, emptied
from bench.team import signal_all
from bench.updates import make_updates
from bench.usage import cpu_s
from bench.work import COMPUTE_MS, CONCURRENCY, DONE, WAIT_MS
from sandbox.simulator import Simulator, start

NODE = Path(__file__).resolve().parents[1] / "node"
GRAMMY = ("grammy@1.46.0", "@grammyjs/runner@2.0.3")
AT_ONCE, PAUSE_MS, WORK_MS = 500, 50, 5
#: Updates that are handled before the others arrive: connections are open, modules imported.
WARM_UP = 20

RUNNER = "grammY runner"
POLLING = "aiogram polling"
DISTRIBUTE = "grammY distribute, 2 workers"
WAITING = {
    "gevent": ("bench.work:wait", ("-P", "gevent", "-c", str(AT_ONCE))),
    "threads": ("bench.work:wait", ("-P", "threads", "-c", str(AT_ONCE))),
    "asyncio": ("bench.work:wait_async", ("-P", "threads", "-c", str(AT_ONCE))),
}
PREFORK = ("-P", "prefork", "-c", "2")


def waits(stage: Stage) -> list[Result]:
    with stage.server("waits") as url, start(simulator.TOKEN) as telegram:
        race = Bots(stage, url, telegram, stage.scale.waits)
        sides = {
            **{name: partial(race.ours, name, *WAITING[name]) for name in stage.scale.waiting},
            RUNNER: partial(race.other, RUNNER, _node("wait")),
            POLLING: partial(race.other, POLLING, [sys.executable, "-m", "bench.work"]),
        }
        measured = alternate(stage.scale.rounds, sides)
    goals = {RUNNER: Goal("ratio", "at least", 0.7), POLLING: Goal("ratio", "at least", 1)}
    return [
        Result(
            "waits",
            f"{PAUSE_MS} ms, {AT_ONCE} at a time, {name} beside {other}",
            "updates/s",
            Side("lanes", measured[name], " ".join(WAITING[name][1])),
            Side(other, measured[other]),
            goal,
        )
        for name in stage.scale.waiting
        for other, goal in goals.items()
    ]


def computes(stage: Stage) -> list[Result]:
    with stage.server("computes") as url, start(simulator.TOKEN) as telegram:
        race = Bots(stage, url, telegram, stage.scale.computes)
        sides = {
            "lanes": partial(race.ours, "prefork", "bench.work:compute", PREFORK),
            RUNNER: partial(race.other, RUNNER, _node("compute")),
            DISTRIBUTE: partial(race.other, DISTRIBUTE, _node("distribute")),
        }
        measured = alternate(stage.scale.rounds, sides)
    goals = {RUNNER: Goal("ratio", "at least", 1.9), DISTRIBUTE: Goal("ratio", "at least", 1)}
    ours = Side("lanes", measured["lanes"], " ".join(PREFORK))
    return [
        Result("computes", f"{WORK_MS} ms, beside {other}", "updates/s", ours, Side(other, measured[other]), goal)
        for other, goal in goals.items()
    ]


def _node(kind: str) -> list[str]:
    return ["node", str(NODE / "runner.cjs"), kind]


def _work(done: Path) -> dict[str, str]:
    names = (DONE, WAIT_MS, COMPUTE_MS, CONCURRENCY)
    values = (str(done), str(PAUSE_MS), str(WORK_MS), str(AT_ONCE))
    packages = ondemand.node("grammy", GRAMMY)
    return {**dict(zip(names, values, strict=True)), "NODE_PATH": str(packages), "BENCH_SPINS": str(_spins())}


@cache
def _spins() -> int:
    """As many as take WORK_MS of a processor in Node."""
    ran = subprocess.run(["node", str(NODE / "spins.cjs")], capture_output=True, text=True, check=True, timeout=120)
    return int(ran.stdout) * WORK_MS


@dataclass(frozen=True)
class Bots:
    """One comparison: `total` updates for each side in each round."""

    stage: Stage
    url: str
    telegram: Simulator
    total: int

    def ours(self, name: str, bot: str, pool: Sequence[str]) -> float:
        """Updates per second of a poller and a worker."""
        settings = {**poller_settings(self.telegram, self.url), "BOT": bot}
        celery = ("celery", "-A", "tasks", "worker", "-l", "WARNING", *pool)
        commands = [[sys.executable, "-m", *celery], [sys.executable, "-m", "poller"]]
        with emptied(self.url):
            return self._run(f"lanes {name}", commands, settings)

    def other(self, name: str, command: Sequence[str]) -> float:
        settings = {"BOT_TOKEN": self.telegram.token, "BOT_API_URL": self.telegram.url}
        return self._run(name, [command], settings)

    def _run(self, name: str, commands: Sequence[Sequence[str]], settings: dict[str, str]) -> float:
        done = self.stage.directory / "done"
        done.write_bytes(b"")
        self.telegram.reset()
        self._push(WARM_UP, first=1)
        with ExitStack() as stack:
            children = [
                stack.enter_context(self.stage.foreign(f"bot-{place}", command, **settings, **_work(done)))
                for place, command in enumerate(commands)
            ]
            until(lambda: done.stat().st_size == WARM_UP, children, f"{name} has begun")
            signal_all(children, signal.SIGSTOP)
            self._push(self.total, first=WARM_UP + 1)
            before_s = self._simulator_s()
            signal_all(children, signal.SIGCONT)
            rate = measure(lambda: WARM_UP + self.total - done.stat().st_size, self.total, children)
        share_us = (self._simulator_s() - before_s) / self.total * 1e6
        self.stage.tell(f"{name}, {self.total}: {rate:,.0f}/s; the simulator took {share_us:,.0f} µs each")
        return rate

    def _push(self, count: int, first: int) -> None:
        waiting = list(make_updates(count, CHATS, first=first))
        for at in range(0, count, PUSH):
            self.telegram.push(*waiting[at : at + PUSH])

    def _simulator_s(self) -> float:
        return cpu_s([self.telegram.process.pid]) if self.telegram.process else 0.0
