"""Conversations: bursts of messages that COLLECT hands over as one run, the time until the next run after an interrupt,
and the cost of collecting for a bot that never collects (collecting.py).

Bursts: ten messages each, every burst in a chat of its own, all loaded before the worker continues; beside them the
same messages one by one. Interrupt: the real poller and worker. A message is sent while the handler of the message
before it runs; the time is taken until the next run starts, without COLLECT_QUIET.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from statistics import median
from time import monotonic

from redis import Redis

from bench.apps.interrupt_bot import STARTS
from bench.load import simulator
from bench.load.updates import Update, make_update
from bench.measure.backlog_rate import measure, until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness
from bench.rows.delivery import collecting
from bench.rows.delivery.intake import poller_settings
from bench.systems.backlogs import BATCH, LanesSide, lane_message, worker
from bench.systems.worker_group import WorkerGroup, worker_group
from celery_lanes.protocol import Group, Store
from chatlanes_sandbox.simulator import Simulator

BURST = 10
POOL = ("-P", "prefork", "-c", "2", "--prefetch-multiplier", "64")
#: bursts/s; ms
BURSTS_GOAL, INTERRUPT_GOAL = Goal("value", "at least", 1_000), Goal("value", "at most", 100)
QUIET_S = 0.1


class Bursts(LanesSide):
    """Counts bursts. Each chat has one, so all its messages have the same lane."""

    def __init__(self, name: str, group: Group | None) -> None:
        super().__init__(name)
        self._group = group

    def load(self, client: Redis, url: str, updates: Iterable[Update]) -> None:
        store, rest = Store(client), iter(updates)
        while batch := [lane_message(update)._replace(group=self._group) for update in islice(rest, BATCH)]:
            store.append(batch)

    def left(self, client: Redis) -> int:
        messages = Store(client).pending("updates")
        return messages if self._group else -(-messages // BURST)


def run(harness: Harness) -> list[Result]:
    return [_bursts(harness), *_interrupts(harness), *collecting.run(harness)]


def _bursts(harness: Harness) -> Result:
    sides = (Bursts("collected", Group("messages", 1, 5_000, 20)), Bursts("one by one", None))
    measured: dict[str, list[float]] = {side.name: [] for side in sides}
    with ExitStack() as stack:
        groups = [stack.enter_context(worker_group(harness, side, [POOL])) for side in sides]
        for _ in range(harness.scale.rounds):
            for group in groups:
                measured[group.side.name].append(_rate(group, harness.scale.bursts))
    collected, single = (Side(name, rounds) for name, rounds in measured.items())
    return Result(
        "conversations", f"bursts of {BURST} messages, {' '.join(POOL)}", "bursts/s", collected, single, BURSTS_GOAL
    )


def _rate(group: WorkerGroup, bursts: int) -> float:
    """Bursts per second."""
    first = next(group.first)
    updates = (make_update(first + number, 1_001 + number // BURST) for number in range(bursts * BURST))
    group.side.load(group.client, group.url, updates)
    with group.running():
        rate = measure(lambda: group.side.left(group.client), bursts, group.children)
    group.harness.report(f"{group.side.name}, {bursts} bursts: {rate:,.0f}/s")
    return rate


def _interrupts(harness: Harness) -> list[Result]:
    starts = harness.directory / "interrupts.starts"
    starts.touch()
    with harness.server("interrupts") as url, simulator.start() as telegram, ExitStack() as stack:
        settings = {
            **poller_settings(telegram, url),
            "COLLECT": "messages",
            "COLLECT_QUIET": str(QUIET_S),
            "INTERRUPT": "on",
            "BOT": "bench.apps.interrupt_bot:handle",
            STARTS: str(starts),
        }
        children = [
            stack.enter_context(harness.child("interrupts-poller", "poller", **settings)),
            stack.enter_context(harness.child("interrupts-worker", *worker("tasks", url, *POOL), **settings)),
        ]
        _next_run_ms(telegram, starts, children, chat=1)  # the first tasks of a worker import modules
        rounds = []
        for number in range(harness.scale.rounds):
            first = 100 + number * harness.scale.interrupts
            rounds.append(
                [_next_run_ms(telegram, starts, children, first + at) for at in range(harness.scale.interrupts)]
            )
            harness.report(f"interrupts: {median(rounds[-1]):.0f} ms, at most {max(rounds[-1]):.0f}")
    case = f"a newer message to the next run, beyond COLLECT_QUIET, {' '.join(POOL[:4])}"
    return [
        Result("conversations", f"{case}, median", "ms", Side("lanes", [median(each) for each in rounds])),
        Result(
            "conversations", f"{case}, most", "ms", Side("lanes", [max(each) for each in rounds]), None, INTERRUPT_GOAL
        ),
    ]


def _next_run_ms(telegram: Simulator, starts: Path, children: list[BenchProcess], chat: int) -> float:
    before = len(starts.read_text().splitlines())
    telegram.push(make_update(2 * chat, chat, numbered=False))
    until(lambda: len(starts.read_text().splitlines()) == before + 1, children, "the first run has started")
    sent_s = monotonic()
    telegram.push(make_update(2 * chat + 1, chat, numbered=False))
    until(lambda: len(starts.read_text().splitlines()) == before + 2, children, "the next run has started")
    return (float(starts.read_text().splitlines()[-1]) - sent_s - QUIET_S) * 1000
