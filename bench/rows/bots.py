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

from bench import ondemand, simulator
from bench.crews import Crew, divided
from bench.figures import Goal, Result, Side
from bench.pace import measure, until
from bench.rounds import alternate, best
from bench.rows.intake import PUSH, poller_settings
from bench.scale import CHATS
from bench.stage import Stage, emptied
from bench.team import signal_all
from bench.updates import make_updates
from bench.usage import cpu_s
from bench.work import COMPUTE_MS, CONCURRENCY, DONE, WAIT_MS
from chatlanes.lanes.protocol.keys import WORKERS
from chatlanes.sandbox.simulator import Simulator, start

NODE = Path(__file__).resolve().parents[1] / "node"
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
    "gevent": ("bench.work:wait", divided(AT_ONCE, "gevent")),
    "threads": ("bench.work:wait", divided(AT_ONCE, "threads")),
    "asyncio": ("bench.work:wait_async", divided(AT_ONCE, "threads")),
}
COMPUTING: tuple[Crew, ...] = (
    Crew(1, ("-P", "prefork", "-c", "2")),
    Crew(2, ("-P", "solo")),
    Crew(2, ("-P", "solo", "--prefetch-multiplier", "64")),
)


def waits(stage: Stage) -> list[Result]:
    with stage.server("waits") as url, start(simulator.TOKEN) as telegram:
        race = BotComparison(stage, url, telegram, stage.scale.waits)
        crews = {name: race.best(*WAITING[name]) for name in stage.scale.waiting}
        measured = alternate(
            stage.scale.rounds,
            {
                **{name: partial(race.ours, WAITING[name][0], crew) for name, crew in crews.items()},
                RUNNER: partial(race.other, RUNNER, _node("wait")),
                POLLING: partial(race.other, POLLING, _aiogram()),
            },
        )
    goals = {RUNNER: Goal("ratio", "at least", 0.7), POLLING: Goal("ratio", "at least", 1)}
    return [
        Result(
            "waits",
            f"{PAUSE_MS} ms, {AT_ONCE} at a time, {name} beside {other}",
            "updates/s",
            Side("lanes", measured[name], str(crew)),
            Side(other, measured[other], ALONE),
            goal,
        )
        for name, crew in crews.items()
        for other, goal in goals.items()
    ]


def computes(stage: Stage) -> list[Result]:
    bot = "bench.work:compute"
    with stage.server("computes") as url, start(simulator.TOKEN) as telegram:
        race = BotComparison(stage, url, telegram, stage.scale.computes)
        crew = race.best(bot, COMPUTING)
        measured = alternate(
            stage.scale.rounds,
            {
                "lanes": partial(race.ours, bot, crew),
                RUNNER: partial(race.other, RUNNER, _node("compute")),
                DISTRIBUTE: partial(race.other, DISTRIBUTE, _node("distribute")),
            },
        )
    ours, runner = Side("lanes", measured["lanes"], str(crew)), Side(RUNNER, measured[RUNNER], ALONE)
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
    return [str(ondemand.python("aiogram", AIOGRAM) / "python"), "-m", "bench.aiogram_polling"]


def _work(done: Path) -> dict[str, str]:
    names = (DONE, WAIT_MS, COMPUTE_MS, CONCURRENCY)
    values = (str(done), str(PAUSE_MS), str(WORK_MS), str(AT_ONCE))
    packages = ondemand.node("grammy", GRAMMY)
    return {**dict(zip(names, values, strict=True)), "NODE_PATH": str(packages), "BENCH_SPINS": str(_spins())}


@cache
def _spins() -> int:
    """The number of spins that take WORK_MS of processor time in Node."""
    ran = subprocess.run(["node", str(NODE / "spins.cjs")], capture_output=True, text=True, check=True, timeout=120)
    return int(ran.stdout) * WORK_MS


@dataclass(frozen=True)
class BotComparison:
    """One comparison: each side handles `total` updates in each round."""

    stage: Stage
    url: str
    telegram: Simulator
    total: int

    def best(self, bot: str, crews: Sequence[Crew]) -> Crew:
        """Tries each with the full number of updates: with fewer, the choice would be random."""
        return best(crews[: self.stage.scale.settings], partial(self.ours, bot))[0]

    def ours(self, bot: str, crew: Crew) -> float:
        """Updates per second of a poller and these workers."""
        settings = {**poller_settings(self.telegram, self.url), "BOT": bot}
        commands = [*crew.commands(self.url), [sys.executable, "-m", "chatlanes.poller"]]
        with emptied(self.url) as client:
            return self._run(f"{bot}, {crew}", commands, settings, lambda: client.zcard(WORKERS) == crew.workers)

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
        done = self.stage.directory / "done"
        done.write_bytes(b"")
        self.telegram.reset()
        self._push(WARM_UP, first=1)
        with ExitStack() as stack:
            children = [
                stack.enter_context(self.stage.foreign(f"bot-{place}", command, **settings, **_work(done)))
                for place, command in enumerate(commands)
            ]
            until(lambda: done.stat().st_size == WARM_UP and all_ready(), children, f"{name} has begun")
            signal_all(children, signal.SIGSTOP)
            self._push(self.total, first=WARM_UP + 1)
            before_s = self._simulator_s()
            signal_all(children, signal.SIGCONT)
            rate = measure(lambda: WARM_UP + self.total - done.stat().st_size, self.total, children)
        share_us = (self._simulator_s() - before_s) / self.total * 1e6
        self.stage.report(f"{name}, {self.total}: {rate:,.0f}/s; simulator: {share_us:,.0f} µs per update")
        return rate

    def _push(self, count: int, first: int) -> None:
        waiting = list(make_updates(count, CHATS, first=first))
        for at in range(0, count, PUSH):
            self.telegram.push(*waiting[at : at + PUSH])

    def _simulator_s(self) -> float:
        return cpu_s([self.telegram.process.pid]) if self.telegram.process else 0.0
