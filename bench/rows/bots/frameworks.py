"""Bots of other frameworks: updates answered per second by poller and worker, against the framework's own polling loop.

Each update is answered with one sendMessage, at once or after a pause. The framework's own loop runs with its fastest
concurrency, keeps updates in memory and loses them if it dies; chatlanes writes each update and each call to disk. Both
sides are started and stopped (SIGSTOP) while the updates are loaded into the simulator, which serves both alike.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.apps.framework_bots import AT_ONCE, PAUSE_MS, WAITS
from bench.load import simulator
from bench.load.updates import Update, make_updates
from bench.measure.backlog_rate import measure, until
from bench.measure.figures import Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import CHATS
from bench.rows.delivery.intake import PUSH, poller_settings
from bench.systems.backlogs import worker
from bench.systems.worker_group import signal_all
from chatlanes_sandbox.simulator import Simulator, start

FRAMEWORKS = {"telebot": "pyTelegramBotAPI", "aiogram": "aiogram", "ptb": "python-telegram-bot"}
#: The last word of an update's text -> the measured case.
HANDLERS = {"": "answers at once", WAITS: f"waits {PAUSE_MS} ms, then answers"}
SLOTS = 50
POOL = ("-P", "threads", "-c", str(SLOTS))
#: Concurrency of the framework's own loop where fewer is faster: python-telegram-bot takes 2.3 ms of processor time per
#: update with one at a time, 3 with eight, up to 5 with fifty. The others do not depend on it.
FEWER = {("ptb", ""): 4}
#: Updates handled before the measurement, so that connections are open and modules imported.
WARM_UP = 20

#: (side, handler) -> values, one per round
Rates = dict[tuple[str, str], list[float]]


def run(harness: Harness) -> list[Result]:
    with harness.server("frameworks") as url, start(simulator.TOKEN) as telegram:
        names = list(FRAMEWORKS)[: harness.scale.frameworks]
        return [line for name in names for line in _compare(FrameworkComparison(harness, url, telegram, name))]


def _compare(comparison: FrameworkComparison) -> list[Result]:
    rates: Rates = defaultdict(list)
    for _ in range(comparison.harness.scale.rounds):
        comparison.ours(rates)
        comparison.own(rates)
    framework = FRAMEWORKS[comparison.name]
    return [
        Result(
            "frameworks",
            f"{framework}, {handler}",
            "updates/s",
            Side("lanes", rates["lanes", handler], " ".join(POOL)),
            Side(f"{framework} polling", rates["own", handler]),
        )
        for handler in HANDLERS.values()
    ]


@dataclass(frozen=True)
class FrameworkComparison:
    """One framework, by its name in bench.apps.framework_bots."""

    harness: Harness
    url: str
    telegram: Simulator
    name: str

    def ours(self, rates: Rates) -> None:
        settings = {**poller_settings(self.telegram, self.url), "BOT": f"bench.apps.framework_bots:{self.name}"}
        commands = (worker("tasks", self.url, *POOL), ["poller"])
        with emptied(self.url):
            self._measure("lanes", commands, settings, HANDLERS, rates)

    def own(self, rates: Rates) -> None:
        for ending, handler in HANDLERS.items():
            at_once = str(FEWER.get((self.name, ending), SLOTS))
            settings = {"BOT_TOKEN": self.telegram.token, "BOT_API_URL": self.telegram.url, AT_ONCE: at_once}
            self._measure("own", [["bench.apps.framework_bots", self.name]], settings, {ending: handler}, rates)

    def _measure(
        self,
        side: str,
        commands: Sequence[Sequence[str]],
        settings: Mapping[str, str],
        handlers: Mapping[str, str],
        rates: Rates,
    ) -> None:
        self.telegram.reset()
        answered, total = WARM_UP, self.harness.scale.answered
        self._push(WARM_UP, first=1)
        with ExitStack() as stack:
            children = [
                stack.enter_context(self.harness.child(f"{self.name}-{side}-{place}", *command, **settings))
                for place, command in enumerate(commands)
            ]
            until(lambda: self._answered() == WARM_UP, children, f"{self.name} {side} has begun")
            for ending, handler in handlers.items():
                self._push_while_frozen(children, total, answered + 1, ending)
                answered += total
                rate = measure(lambda: answered - self._answered(), total, children)  # noqa: B023  called only in this iteration
                rates[side, handler].append(rate)
                self.harness.report(f"{self.name} {side}, {handler}, {total}: {rate:,.0f}/s")

    def _push_while_frozen(self, children: Sequence[BenchProcess], count: int, first: int, ending: str) -> None:
        signal_all(children, signal.SIGSTOP)
        self._push(count, first, ending)
        signal_all(children, signal.SIGCONT)

    def _push(self, count: int, first: int, ending: str = "") -> None:
        waiting = [_ending(update, ending) for update in make_updates(count, CHATS, first=first)]
        for at in range(0, count, PUSH):
            self.telegram.push(*waiting[at : at + PUSH])

    def _answered(self) -> int:
        return int(self.telegram.stats()["calls"].get("sendMessage", 0))


def _ending(update: Update, ending: str) -> Update:
    """Replaces the end of the text; its length stays the same."""
    text = update["message"]["text"]
    update["message"]["text"] = text[: len(text) - len(ending)] + ending
    return update
