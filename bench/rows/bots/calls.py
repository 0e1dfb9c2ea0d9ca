"""Calls: the cost of journal and flood control for a handler that makes one call, against the same handler without
them.

The backlog is loaded before the worker starts; the simulator answers at once, where Telegram takes tens of
milliseconds. Both sides run in lanes: one uses `ctx.call`, the other a session of `requests`, without journal and
gate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from bench.apps.call_bot import CALLS
from bench.load import simulator
from bench.load.updates import make_updates
from bench.measure.backlog_rate import measure
from bench.measure.figures import Result, Side
from bench.measure.harness import Harness, emptied
from bench.measure.rounds import alternate
from bench.measure.scale import CHATS
from bench.rows.delivery.intake import poller_settings
from bench.systems.backlogs import BATCH, worker
from chatlanes.settings import load
from chatlanes.updates.intake import Intake
from chatlanes_sandbox.simulator import Simulator, start

POOLS = (("-P", "prefork", "-c", "2"), ("-P", "threads", "-c", "8"))


def run(harness: Harness) -> list[Result]:
    with harness.server("calls") as url, start(simulator.TOKEN) as telegram:
        return [line for pool in POOLS[: harness.scale.pools] for line in _compare(harness, url, telegram, pool)]


def _compare(harness: Harness, url: str, telegram: Simulator, pool: tuple[str, ...]) -> list[Result]:
    ours, bare = (CallWorker(harness, url, telegram, pool, handler) for handler in ("journaled", "bare"))
    rates = alternate(harness.scale.rounds, {each.handler: each.measure for each in (ours, bare)})
    case = f"one sendMessage, {' '.join(pool)}"
    return [
        Result("calls", f"{case}, time of the call", "ms", _ours(ours.times_ms), _bare(bare.times_ms)),
        Result("calls", case, "updates/s", _ours(rates["journaled"]), _bare(rates["bare"])),
    ]


def _ours(rounds: list[float]) -> Side:
    return Side("lanes", rounds, "journal and gate")


def _bare(rounds: list[float]) -> Side:
    return Side("requests", rounds)


@dataclass
class CallWorker:
    """A worker with one of the handlers of call_bot. `times_ms` is the median time of a call in each round."""

    harness: Harness
    url: str
    telegram: Simulator
    pool: tuple[str, ...]
    handler: str
    times_ms: list[float] = field(default_factory=list)

    def measure(self) -> float:
        """Updates per second."""
        total, times = self.harness.scale.calls, self.harness.directory / "calls"
        times.unlink(missing_ok=True)
        settings = poller_settings(self.telegram, self.url)
        with emptied(self.url):
            self.telegram.reset()
            intake = Intake.connect(load(settings, env_file=None))
            updates = list(make_updates(total, CHATS))
            for at in range(0, total, BATCH):
                intake.append(updates[at : at + BATCH])
            command = worker("tasks", self.url, *self.pool)
            own = {"BOT": f"bench.apps.call_bot:{self.handler}", CALLS: str(times)}
            with self.harness.child(f"{self.handler}-worker", *command, **settings, **own) as child:
                rate = measure(intake.pending, total, [child])
            intake.close()
        self.times_ms.append(median(map(float, times.read_text().splitlines())))
        self.harness.report(f"{' '.join(self.pool)} {self.handler}: {rate:,.0f}/s, {self.times_ms[-1]:.2f} ms a call")
        return rate
