"""Stops: the time from a `/stop` to the last effect of the run that it ends, and what CONTROL costs a bot that is never
stopped.

As many chats as the workers have slots: the handler of each sends a message every 10 ms, and all users send `/stop`.
The time is taken from the sending of the stops to the last message of the handler that reaches the simulator. With
kills, one of two workers gets SIGKILL right before the stops, and only the runs of the other one are counted.
Throughput: a backlog of updates, processed by a bot that does nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from bench.apps.stoppable_bot import STOPPED
from bench.load import simulator
from bench.load.updates import make_update, make_updates
from bench.measure.backlog_rate import measure, until
from bench.measure.figures import Goal, Result, Side, percentile
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.rounds import alternate
from bench.measure.scale import CHATS
from bench.rows.delivery.intake import poller_settings
from bench.systems.backlogs import BATCH, worker
from chatlanes.settings import load
from chatlanes.updates.intake import Intake
from chatlanes_sandbox.simulator import Simulator

SLOTS = 4
PREFORK, THREADS = ("-P", "prefork", "-c", str(SLOTS)), ("-P", "threads", "-c", str(SLOTS))
#: The bot and the pool of each case.
CASES = {"plain function": ("plain", PREFORK), "coroutine": ("coroutine", THREADS)}
LATENCY_GOAL, COST_GOAL = Goal("value", "at most", 100), Goal("ratio", "at least", 0.97)
#: A killed worker is started anew, so there are fewer stops with kills.
KILLS_SHARE = 5
#: A run is stopped when it has sent this many messages.
SENT = 3
#: A message that a stopped run had sent would have arrived by then.
ARRIVES_WITHIN_S = 0.2
THROUGHPUT_POOL = ("-P", "prefork", "-c", "2", "--prefetch-multiplier", "64")


def run(harness: Harness) -> list[Result]:
    results = [each for case, (bot, pool) in CASES.items() for each in _latency(harness, case, bot, pool, kills=False)]
    return [*results, *_latency(harness, "coroutine", "coroutine", THREADS, kills=True), _throughput(harness)]


def _latency(harness: Harness, case: str, bot: str, pool: tuple[str, ...], *, kills: bool) -> list[Result]:
    with harness.server("stops") as url, simulator.start() as telegram, ExitStack() as stack:
        own = {"BOT": f"bench.apps.stoppable_bot:{bot}", "LEASE_SECONDS": "3"}
        settings = {**poller_settings(telegram, url), **own}
        stack.enter_context(harness.child("stops-poller", "poller", **settings))
        stops = Stops(harness, stack, telegram, worker("tasks", url, *pool), settings)
        for _ in range(2 if kills else 1):
            stops.start_worker()
        stops.of_batch_ms(kills=False)  # the first tasks of a worker import modules
        rounds = [stops.of_round_ms(kills=kills) for _ in range(harness.scale.rounds)]
    name = f"stop to the last effect, {case}, {' '.join(pool)}{', with kill -9' if kills else ''}"
    p99s = [percentile(each, 99) for each in rounds]
    return [
        Result("stops", f"{name}, p50", "ms", Side("lanes", [median(each) for each in rounds])),
        Result("stops", f"{name}, p99", "ms", Side("lanes", p99s), None, LATENCY_GOAL),
    ]


@dataclass
class Stops:
    harness: Harness
    stack: ExitStack
    telegram: Simulator
    command: list[str]
    settings: Mapping[str, str]
    workers: tuple[BenchProcess, ...] = ()
    chat: int = 1_000
    started: int = 0
    #: The number of the last call of the batch before.
    seen: int = 0

    def start_worker(self) -> None:
        self.started += 1
        command = [sys.executable, "-m", *self.command, "-n", f"stops{self.started}@%h"]
        started = self.harness.foreign(f"stops-worker{self.started}", command, **self.settings)
        self.workers = (*self.workers, self.stack.enter_context(started))

    def of_round_ms(self, *, kills: bool) -> list[float]:
        found: list[float] = []
        while len(found) < self.harness.scale.stops / (KILLS_SHARE if kills else 1):
            found += self.of_batch_ms(kills=kills)
        what = f"stops, {len(self.workers)} workers: {median(found):.1f} ms, p99 {percentile(found, 99):.1f}"
        self.harness.report(f"{what}, of {len(found)}")
        return found

    def of_batch_ms(self, *, kills: bool) -> list[float]:
        chats = range(self.chat, self.chat + SLOTS * len(self.workers))
        self.chat += len(chats)
        self.telegram.push(*(make_update(chat, chat, numbered=False) for chat in chats))
        until(partial(self._have_sent, chats), self.workers, "all runs have sent messages")
        killed = self._kill_oldest() if kills else None
        stopped_s = time.time()
        self.telegram.push(*(_stop(chat) for chat in chats))
        until(partial(self._have_stopped, chats), self.workers, "all runs have been stopped")
        time.sleep(ARRIVES_WITHIN_S)
        lasts = [self._sent(chat)[-1] for chat in chats]
        self.seen = self._calls()[-1]["number"]
        if kills:
            self.start_worker()
        return [max(last["at"] - stopped_s, 0.0) * 1000 for last in lasts if last["params"]["text"] != str(killed)]

    def _kill_oldest(self) -> int:
        """Its process. It is killed, not stopped."""
        child, *rest = self.workers
        child.kill()
        self.workers = tuple(rest)
        return child.pid

    def _have_sent(self, chats: range) -> bool:
        return all(len(self._sent(chat)) >= SENT for chat in chats)

    def _have_stopped(self, chats: range) -> bool:
        return {call["params"]["chat_id"] for call in self._calls() if call["params"]["text"] == STOPPED} >= set(chats)

    def _sent(self, chat: int) -> list[dict[str, Any]]:
        """The messages of its handler."""
        return [
            call for call in self._calls() if call["params"]["chat_id"] == chat and call["params"]["text"] != STOPPED
        ]

    def _calls(self) -> list[dict[str, Any]]:
        """Those of this batch."""
        return self.telegram.calls("sendMessage", after=self.seen)


def _stop(chat: int) -> dict[str, Any]:
    update = make_update(chat, chat, numbered=False)
    update["message"]["text"] = "/stop"
    return update


def _throughput(harness: Harness) -> Result:
    total = harness.scale.uncollected
    with harness.server("control") as url:
        sides = {control: partial(_rate, harness, url, control, total) for control in ("/stop,/cancel", "none")}
        rates = alternate(harness.scale.rounds, sides)
    on, off = (Side(f"CONTROL={control}", rates[control]) for control in sides)
    case = f"updates of a bot that does nothing, {' '.join(THROUGHPUT_POOL[:4])}"
    return Result("stops", case, "updates/s", on, off, COST_GOAL)


def _rate(harness: Harness, url: str, control: str, total: int) -> float:
    """Updates per second of a backlog that is loaded before the worker starts."""
    settings = {"BOT_TOKEN": simulator.TOKEN, "REDIS_URL": url, "BOT": "bench.apps.bot:do_nothing", "CONTROL": control}
    with emptied(url):
        intake = Intake.connect(load(settings, env_file=None))
        updates = list(make_updates(total, CHATS))
        for at in range(0, total, BATCH):
            intake.append(updates[at : at + BATCH])
        with harness.child("control-worker", *worker("tasks", url, *THROUGHPUT_POOL), **settings) as child:
            rate = measure(intake.pending, total, [child])
        intake.close()
    harness.report(f"CONTROL={control}: {rate:,.0f}/s")
    return rate
