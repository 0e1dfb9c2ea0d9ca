"""Collecting: what COLLECT costs a bot whose updates never belong together, beside the same bot with COLLECT=none.

The cost is the processor time of the intake, Redis and the worker, from the append to the settled update. The sides
take turns after every 500 updates, each of a chat of its own, because a slow phase of the machine is longer than that.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from redis import Redis

from bench.load.updates import make_updates
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import CHATS
from bench.measure.usage import idle_cpu_s, server_cpu_s
from bench.systems.backlogs import BATCH, worker
from bench.systems.worker_group import signal_all
from chatlanes.settings import load
from chatlanes.updates.intake import Intake

POOL = ("-P", "prefork", "-c", "2", "--prefetch-multiplier", "64")
GOAL = Goal("ratio", "at most", 1.03)
#: With `albums` these updates are in no group; with `messages` each is a group of one.
OFF, ALBUMS, MESSAGES = "none", "albums", "messages"
#: Updates before the first round: the first tasks of a worker import modules.
FIRST = 1_000


@dataclass
class Bot:
    """The intake and the worker of a bot that does nothing, on their own server. `appended` counts its updates."""

    client: Redis
    intake: Intake
    child: BenchProcess
    appended: int = 0

    def process(self, count: int) -> float:
        """Processor seconds of all parts, from the append to the settled update."""
        updates = list(make_updates(count, CHATS, first=1 + self.appended))
        before_s, own_s = self._used_s(), time.process_time()
        for at in range(0, count, BATCH):
            self.intake.append(updates[at : at + BATCH])
        own_s = time.process_time() - own_s
        self.appended += count
        signal_all([self.child], signal.SIGCONT)
        until(lambda: not self.intake.pending(), [self.child], f"{count} are settled")
        signal_all([self.child], signal.SIGSTOP)
        return own_s + self._used_s() - before_s

    def _used_s(self) -> float:
        return idle_cpu_s(self.child.pid) + server_cpu_s([self.client])


def run(harness: Harness) -> list[Result]:
    measured: dict[str, list[float]] = {OFF: [], ALBUMS: [], MESSAGES: []}
    with ExitStack() as stack:
        bots = {collect: stack.enter_context(_bot(harness, collect)) for collect in measured}
        for bot in bots.values():
            bot.process(FIRST)
        for _ in range(harness.scale.rounds):
            for collect, each_us in _round(bots, harness.scale.uncollected).items():
                measured[collect].append(each_us)
                harness.report(f"COLLECT={collect}: {each_us:.0f} µs each")
    off = Side(f"COLLECT={OFF}", measured[OFF])
    case = "processor time for an update, COLLECT"
    return [
        Result("conversations", f"{case}=albums, no albums", "µs", Side("lanes", measured[ALBUMS]), off, GOAL),
        Result("conversations", f"{case}=messages, each alone", "µs", Side("lanes", measured[MESSAGES]), off),
    ]


def _round(bots: dict[str, Bot], count: int) -> dict[str, float]:
    """Microseconds of each bot for an update."""
    used_s = dict.fromkeys(bots, 0.0)
    for _ in range(0, count, CHATS):
        for collect, bot in bots.items():
            used_s[collect] += bot.process(CHATS)
    return {collect: each_s / count * 1e6 for collect, each_s in used_s.items()}


@contextmanager
def _bot(harness: Harness, collect: str) -> Iterator[Bot]:
    """Its worker is stopped (SIGSTOP) except while it is measured."""
    with ExitStack() as stack:
        url = stack.enter_context(harness.server(f"collect-{collect}"))
        client = stack.enter_context(emptied(url))
        settings = {
            "BOT_TOKEN": "1:BENCH",
            "REDIS_URL": url,
            "BOT": "bench.apps.bot:do_nothing",
            "COLLECT": collect,
            "COLLECT_QUIET": "0.05",
        }
        intake = Intake.connect(load(settings, env_file=None))
        stack.callback(intake.close)
        command = worker("tasks", url, *POOL)
        child = stack.enter_context(harness.child(f"collect-{collect}-worker", *command, **settings))
        stack.callback(signal_all, [child], signal.SIGCONT)
        yield Bot(client, intake, child)
