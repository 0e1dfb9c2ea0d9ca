"""Whole bots on one simulator: poller and worker with lanes in Redis, against bots that poll and keep updates in
memory.

`waits`: a handler that waits 50 ms, 500 at a time. `computes`: a handler that takes 5 ms of processor time. Lanes are
tried with one worker and with two, and measured with the faster. Each side is started and then stopped (SIGSTOP) while
the updates are loaded into the simulator. The simulator uses the same processors and answers all sides alike, 100
updates at a time; its processor time is printed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench.apps.wait_and_compute import COMPUTE_MS, CONCURRENCY, DONE, WAIT_MS
from bench.load import simulator
from bench.load.updates import make_updates
from bench.measure.backlog_rate import measure, until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import ROOT, Harness, emptied
from bench.measure.rounds import alternate, best
from bench.measure.scale import CHATS
from bench.measure.usage import cpu_s
from bench.rows.delivery.intake import PUSH, poller_settings
from bench.systems import install
from bench.systems.worker_group import signal_all
from bench.systems.worker_setup import WorkerSetup, divided
from celery_lanes.protocol.keys import WORKERS
from chatlanes_sandbox.simulator import Simulator, start

NODE = ROOT / "bench" / "apps" / "node"
GRAMMY = ("grammy@1.46.0", "@grammyjs/runner@2.0.3")
AIOGRAM = ("aiogram==3.31.0", "uvloop==0.23.0")
AT_ONCE, PAUSE_MS, WORK_MS = 500, 50, 5
#: Updates handled before the measurement, so that connections are open and modules imported.
WARM_UP = 20

RUNNER = "grammY runner"
POLLING = "aiogram polling"
DISTRIBUTE = "grammY distribute, 2 workers"
#: getUpdates serves one process at a time, which keeps the updates in its memory.
ALONE = "one process, as it is made"

WAITING = {
    "gevent": ("bench.apps.wait_and_compute:wait", divided(AT_ONCE, "gevent")),
    "threads": ("bench.apps.wait_and_compute:wait", divided(AT_ONCE, "threads")),
    "asyncio": ("bench.apps.wait_and_compute:wait_async", divided(AT_ONCE, "threads")),
}
COMPUTING: tuple[WorkerSetup, ...] = (
    WorkerSetup(1, ("-P", "prefork", "-c", "2")),
    WorkerSetup(2, ("-P", "solo")),
    WorkerSetup(2, ("-P", "solo", "--prefetch-multiplier", "64")),
)


def waits(harness: Harness) -> list[Result]:
    with harness.server("waits") as url, start(simulator.TOKEN) as telegram:
        comparison = BotComparison(harness, url, telegram, harness.scale.waits)
        setups = {name: comparison.best(*WAITING[name]) for name in harness.scale.waiting}
        measured = alternate(
            harness.scale.rounds,
            {
                **{name: partial(comparison.ours, WAITING[name][0], setup) for name, setup in setups.items()},
                RUNNER: partial(comparison.other, RUNNER, _node("wait")),
                POLLING: partial(comparison.other, POLLING, _aiogram()),
            },
        )
    goals = {RUNNER: Goal("ratio", "at least", 0.7), POLLING: Goal("ratio", "at least", 1)}
    return [
        Result(
            "waits",
            f"{PAUSE_MS} ms, {AT_ONCE} at a time, {name} beside {other}",
            "updates/s",
            Side("lanes", measured[name], str(setup)),
            Side(other, measured[other], ALONE),
            goal,
        )
        for name, setup in setups.items()
        for other, goal in goals.items()
    ]


def computes(harness: Harness) -> list[Result]:
    bot = "bench.apps.wait_and_compute:compute"
    with harness.server("computes") as url, start(simulator.TOKEN) as telegram:
        comparison = BotComparison(harness, url, telegram, harness.scale.computes)
        setup = comparison.best(bot, COMPUTING)
        measured = alternate(
            harness.scale.rounds,
            {
                "lanes": partial(comparison.ours, bot, setup),
                RUNNER: partial(comparison.other, RUNNER, _node("compute")),
                DISTRIBUTE: partial(comparison.other, DISTRIBUTE, _node("distribute")),
            },
        )
    ours, runner = Side("lanes", measured["lanes"], str(setup)), Side(RUNNER, measured[RUNNER], ALONE)
    distribute = Side(DISTRIBUTE, measured[DISTRIBUTE])
    case = f"{WORK_MS} ms, beside"
    return [
        Result("computes", f"{case} {RUNNER}", "updates/s", ours, runner, Goal("ratio", "at least", 1.9)),
        Result("computes", f"{case} {DISTRIBUTE}", "updates/s", ours, distribute, Goal("ratio", "at least", 1)),
    ]


def _node(kind: str) -> list[str]:
    return ["node", str(NODE / "runner.cjs"), kind]


def _aiogram() -> list[str]:
    """With uvloop (from aiogram's `fast` extra), which run_polling uses if it is installed."""
    return [str(install.python("aiogram", AIOGRAM) / "python"), "-m", "bench.apps.aiogram_polling"]


def _work(done: Path) -> dict[str, str]:
    names = (DONE, WAIT_MS, COMPUTE_MS, CONCURRENCY)
    values = (str(done), str(PAUSE_MS), str(WORK_MS), str(AT_ONCE))
    packages = install.node("grammy", GRAMMY)
    return {**dict(zip(names, values, strict=True)), "NODE_PATH": str(packages), "BENCH_SPINS": str(_spins())}


@cache
def _spins() -> int:
    """The number of spins that take WORK_MS of processor time in Node."""
    ran = subprocess.run(["node", str(NODE / "spins.cjs")], capture_output=True, text=True, check=True, timeout=120)
    return int(ran.stdout) * WORK_MS


@dataclass(frozen=True)
class BotComparison:
    """One comparison: each side handles `total` updates in each round."""

    harness: Harness
    url: str
    telegram: Simulator
    total: int

    def best(self, bot: str, setups: Sequence[WorkerSetup]) -> WorkerSetup:
        """Tries each with the full number of updates: with fewer, the choice would be random."""
        return best(setups[: self.harness.scale.settings], partial(self.ours, bot))[0]

    def ours(self, bot: str, setup: WorkerSetup) -> float:
        """Updates per second of a poller and these workers."""
        settings = {**poller_settings(self.telegram, self.url), "BOT": bot}
        commands = [*setup.commands(self.url), [sys.executable, "-m", "chatlanes.poller"]]
        with emptied(self.url) as client:
            return self._run(f"{bot}, {setup}", commands, settings, lambda: client.zcard(WORKERS) == setup.workers)

    def other(self, name: str, command: Sequence[str]) -> float:
        settings = {"BOT_TOKEN": self.telegram.token, "BOT_API_URL": self.telegram.url}
        return self._run(name, [command], settings)

    def _run(
        self,
        name: str,
        commands: Sequence[Sequence[str]],
        settings: dict[str, str],
        all_ready: Callable[[], bool] = lambda: True,
    ) -> float:
        done = self.harness.directory / "done"
        done.write_bytes(b"")
        self.telegram.reset()
        self._push(WARM_UP, first=1)
        with ExitStack() as stack:
            children = [
                stack.enter_context(self.harness.foreign(f"bot-{place}", command, **settings, **_work(done)))
                for place, command in enumerate(commands)
            ]
            until(lambda: done.stat().st_size == WARM_UP and all_ready(), children, f"{name} has begun")
            signal_all(children, signal.SIGSTOP)
            self._push(self.total, first=WARM_UP + 1)
            before_s = self._simulator_s()
            signal_all(children, signal.SIGCONT)
            rate = measure(lambda: WARM_UP + self.total - done.stat().st_size, self.total, children)
        share_us = (self._simulator_s() - before_s) / self.total * 1e6
        self.harness.report(f"{name}, {self.total}: {rate:,.0f}/s; simulator: {share_us:,.0f} µs per update")
        return rate

    def _push(self, count: int, first: int) -> None:
        waiting = list(make_updates(count, CHATS, first=first))
        for at in range(0, count, PUSH):
            self.telegram.push(*waiting[at : at + PUSH])

    def _simulator_s(self) -> float:
        return cpu_s([self.telegram.process.pid]) if self.telegram.process else 0.0
