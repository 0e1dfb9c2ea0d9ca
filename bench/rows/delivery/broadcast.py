"""A broadcast beside live updates: the time of replies, with and without it; and its rate beside that of a plain loop.

Each call takes 50 ms at the simulator, as at Telegram. Live updates arrive at random moments, 20 a second, while a
broadcast, or a loop in a process of its own, sends 25 a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.apps.bot import STARTS
from bench.load import simulator
from bench.measure.backlog_rate import until
from bench.measure.figures import Goal, Result, Side, percentile
from bench.measure.harness import BenchProcess, Harness
from bench.measure.scale import CHATS
from bench.rows.delivery.intake import poller_settings
from bench.systems.backlogs import worker
from celery_lanes.protocol import Store, connect
from chatlanes.broadcasts import Broadcasts, Call, Feeder
from chatlanes.settings import load
from chatlanes_sandbox.simulator import Simulator

POOL = ("-P", "threads", "-c", "16")
CALL_S = 0.05
LIVE_RATE, RATE = 20.0, 25.0
#: Replies before the first round: the first tasks of a worker import modules and open connections.
FIRST = 40
NEWS = Call("sendMessage", {"text": "news"})
#: The chats of the broadcast are not those of the live updates.
FIRST_CHAT = 1_000_000


def run(harness: Harness) -> list[Result]:
    alone, beside, sent, looped = [], [], [], []
    with _bot(harness) as bot:
        bot.replies_ms(FIRST, seed=0)
        for seed in range(1, harness.scale.rounds + 1):
            alone.append(percentile(bot.replies_ms(harness.scale.replies, seed), 99))
            with bot.broadcast(f"b{seed}"):
                beside.append(percentile(bot.replies_ms(harness.scale.replies, seed), 99))
            sent.append(bot.rate_of_broadcast(f"r{seed}", harness.scale.replies))
            looped.append(bot.rate_of_loop(harness, harness.scale.replies))
            harness.report(
                f"p99 {alone[-1]:.0f} ms, {beside[-1]:.0f} ms beside; {sent[-1]:.1f}/s, loop {looped[-1]:.1f}/s"
            )
    case = f"{' '.join(POOL)}, {LIVE_RATE:g} live updates/s"
    goal = Goal("ratio", "at most", 1.1)
    return [
        Result(
            "broadcast",
            f"{case}, reply p99",
            "ms",
            Side("lanes", beside, f"beside a broadcast of {RATE:g}/s"),
            Side("no broadcast", alone),
            goal,
        ),
        Result("broadcast", f"asked for {RATE:g}/s", "chats/s", Side("lanes", sent), Side("plain loop", looped)),
    ]


@dataclass
class BroadcastingBot:
    """A running bot."""

    telegram: Simulator
    feeder: Feeder
    starts: Path
    children: list[BenchProcess]

    def replies_ms(self, count: int, seed: int) -> list[float]:
        """The time of each of `count` replies."""
        before = self._replied()
        self.telegram.stream(chats=CHATS, rate=LIVE_RATE, total=count, seed=seed)
        until(lambda: self._replied() >= before + count, self.children, f"{count} replies")
        return [float(line) for line in self.starts.read_text().splitlines()[before:]]

    @contextmanager
    def broadcast(self, id_: str) -> Iterator[None]:
        """One that runs during the block, at its full rate from the beginning."""
        broadcasts = self._start(id_, 100_000)
        until(lambda: broadcasts.progress(id_).done > RATE, self.children, "the broadcast runs")
        yield
        self.feeder.cancel(id_)
        until(lambda: broadcasts.progress(id_).ended_ms > 0, self.children, "the broadcast is cancelled")

    def rate_of_broadcast(self, id_: str, count: int) -> float:
        broadcasts = self._start(id_, count)
        until(lambda: broadcasts.progress(id_).ended_ms > 0, self.children, "the broadcast has ended")
        now = broadcasts.progress(id_)
        return count / (now.ended_ms - now.started_ms) * 1000

    def rate_of_loop(self, harness: Harness, count: int) -> float:
        before, began_s = self._sent(), time.monotonic()
        url = f"{self.telegram.url}/bot{self.telegram.token}"
        command = [sys.executable, "-m", "bench.apps.reply_bot", url, str(count), str(RATE)]
        with harness.foreign("loop", command) as child:
            until(lambda: self._sent() >= before + count, [child], "the loop has ended")
            return count / (time.monotonic() - began_s)

    def _start(self, id_: str, count: int) -> Broadcasts:
        self.feeder.broadcasts.store(id_, NEWS, range(FIRST_CHAT, FIRST_CHAT + count), RATE)
        self.feeder.start(id_)
        return self.feeder.broadcasts

    def _replied(self) -> int:
        return self.starts.read_bytes().count(b"\n")

    def _sent(self) -> int:
        return int(self.telegram.stats()["calls"].get("sendMessage", 0))


@contextmanager
def _bot(harness: Harness) -> Iterator[BroadcastingBot]:
    starts = harness.directory / "broadcast.starts"
    starts.touch()
    with ExitStack() as stack:
        url = stack.enter_context(harness.server("broadcast"))
        telegram = stack.enter_context(simulator.start())
        telegram.fault(method="sendMessage", hang_s=CALL_S, times=0)
        settings = poller_settings(telegram, url)
        own = {"BOT": "bench.apps.reply_bot:handle", STARTS: str(starts)}
        poller = stack.enter_context(harness.child("poller", "poller", **settings))
        replies = stack.enter_context(harness.child("worker", *worker("tasks", url, *POOL), **settings, **own))
        client = stack.enter_context(connect(url))
        feeder = Feeder(Store(client), load(settings, env_file=None))
        yield BroadcastingBot(telegram, feeder, starts, [poller, replies])
