"""Recovery: workers are killed with kill -9 while each runs a handler; the time until another worker starts it again.

Each of five workers runs one update; a sixth worker is idle. They are killed at different moments between two lease
renewals. All sides wait at the same time, each on its own server: waiting uses almost no processor time. Stock Celery's
default visibility timeout, one hour, is not measured.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from redis import Redis

from bench.apps.endless import HOLDS, RELEASE_AFTER
from bench.apps.slow_chat import STARTS
from bench.load.updates import make_updates
from bench.measure.backlog_rate import POLL_EVERY_S, until
from bench.measure.figures import Goal, Result, Side
from bench.measure.harness import BenchProcess, Harness, emptied
from bench.measure.scale import READY
from bench.systems.backlogs import BacklogSide, LanesSide, Stock, lane_message, worker
from celery_lanes.protocol import Store

HOLDER = ("-P", "solo", "--prefetch-multiplier", "1")
RESCUER = ("-P", "threads", "-c", "8")
#: Longer than stock Celery with 10 s has ever needed; longer times count as this.
GIVE_UP_S = 240.0


@dataclass(frozen=True)
class Policy:
    """For how long the messages of a dead worker stay with it."""

    name: str
    side: type[BacklogSide]
    seconds: int
    goal: Goal | None = None


POLICIES = {
    "stock": Policy("visibility timeout 10 s", Stock, 10),
    "lease 15 s": Policy("lease 15 s", LanesSide, 15, Goal("value", "at most", 16)),
    "lease 3 s": Policy("lease 3 s", LanesSide, 3, Goal("value", "at most", 4.5)),
}


def run(harness: Harness) -> list[Result]:
    with ExitStack() as stack:
        sides = {
            name: RecoverySide(harness, stack, f"side{place}", POLICIES[name])
            for place, name in enumerate(harness.scale.policies)
        }
        for side in sides.values():
            side.start_holders()
        for side in sides.values():
            side.kill_holders()
        _await(sides.values())
        waits = {name: side.waits_s() for name, side in sides.items()}
    beside = waits.pop("stock", None)
    return [
        Result(
            "recovery",
            f"kill -9 to started again, {name}",
            "s",
            Side("lanes", waits_s),
            Side("stock", beside, POLICIES["stock"].name) if beside else None,
            POLICIES[name].goal,
        )
        for name, waits_s in waits.items()
    ]


class RecoverySide:
    """One side: `holders` run a handler that never ends; `rescuers` have nothing to do."""

    def __init__(self, harness: Harness, stack: ExitStack, name: str, policy: Policy) -> None:
        self._stage, self._stack, self._name = harness, stack, name
        self._side = policy.side()
        self._url = stack.enter_context(harness.server(name))
        self._client: Redis = stack.enter_context(emptied(self._url))
        self._starts = harness.directory / f"{name}.starts"
        self._starts.touch()
        self._settings = {STARTS: str(self._starts), RELEASE_AFTER: str(policy.seconds)}
        self._between_s = policy.seconds / 15
        self._killed_s: dict[int, float] = {}  # process -> time of its death
        self.holders: list[BenchProcess] = []
        self.rescuers: list[BenchProcess] = []

    def start_holders(self) -> None:
        """Every holder has started one update, and a rescuer is ready."""
        count = self._stage.scale.killed
        self.holders = [self._worker(f"holder{n}", HOLDER, {HOLDS: "1"}) for n in range(count)]
        self._wait_until_ready(self.holders)
        for number in range(count):
            self._publish(number + 1)
        until(lambda: len(self._lines()) == count, self.holders, f"{self._name}: {count} handlers have started")
        self.rescuers = [self._worker("rescuer", RESCUER, {})]
        self._wait_until_ready(self.rescuers)

    def kill_holders(self) -> None:
        for child in self.holders:
            self._killed_s[child.pid] = time.monotonic()
            child.kill()
            time.sleep(self._between_s)  # a lease is renewed after a third of its time

    def is_recovered(self) -> bool:
        return len(self._lines()) == 2 * len(self.holders)

    def waits_s(self) -> list[float]:
        """For each update, the time from the death of its first worker to its second start."""
        first, second = self._lines()[: len(self.holders)], self._lines()[len(self.holders) :]
        again = {update: at_s for update, _, at_s in second}
        waits_s = [again.get(update, float("inf")) - self._killed_s[pid] for update, pid, _ in first]
        self._stage.report(f"{self._name}: {', '.join(f'{wait_s:.1f}' for wait_s in waits_s)} s")
        return [min(wait_s, GIVE_UP_S) for wait_s in waits_s]

    def _publish(self, number: int) -> None:
        [update] = make_updates(1, 1, first=number)
        update["message"]["chat"]["id"] += number  # each in its own lane
        if isinstance(self._side, LanesSide):
            Store(self._client).append([lane_message(update, "bench.hold")])
            return
        from bench.apps.stock_app import app, hold

        with app.connection_for_write(self._url) as connection:
            hold.apply_async((update,), connection=connection)

    def _worker(self, name: str, options: Sequence[str], settings: dict[str, str]) -> BenchProcess:
        command = [sys.executable, "-m", *worker(self._side.app, self._url, *options, "-n", f"{name}@%h")]
        name = f"{self._name}-{name}"
        return self._stack.enter_context(self._stage.foreign(name, command, **self._settings, **settings))

    def _wait_until_ready(self, children: list[BenchProcess]) -> None:
        for child in children:
            until(partial(child.has_printed, READY), children, f"{child.name} is ready")

    def _lines(self) -> list[tuple[int, int, float]]:
        """(update, process, seconds)"""
        words = (line.split() for line in self._starts.read_text().splitlines())
        return [(int(update), int(pid), float(at_s)) for update, pid, at_s in words]


def _await(sides: Collection[RecoverySide]) -> None:
    """Wait until all updates have been started again, but not longer than GIVE_UP_S."""
    give_up_at_s = time.monotonic() + GIVE_UP_S
    while not all(side.is_recovered() for side in sides) and time.monotonic() < give_up_at_s:
        for side in sides:
            for child in side.rescuers:
                child.check()
        time.sleep(POLL_EVERY_S)
