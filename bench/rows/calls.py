"""Calls: the cost of journal and flood control for a handler that makes one call, against the same handler without
them.

The backlog is loaded before the worker starts; the simulator answers at once, where Telegram takes tens of
milliseconds. Both sides run in lanes: one uses `ctx.call`, the other a session of `requests`, without journal and
gate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from bench import simulator
from bench.figures import Result, Side
from bench.pace import measure
from bench.rounds import alternate
from bench.rows.intake import poller_settings
from bench.scale import CHATS
from bench.sides import BATCH, worker
from bench.stage import Stage, emptied
from bench.talker import CALLS
from bench.updates import make_updates
from chatlanes.sandbox.simulator import Simulator, start
from chatlanes.settings import load
from chatlanes.updates.intake import Intake

POOLS = (("-P", "prefork", "-c", "2"), ("-P", "threads", "-c", "8"))


def run(stage: Stage) -> list[Result]:
    with stage.server("calls") as url, start(simulator.TOKEN) as telegram:
        return [line for pool in POOLS[: stage.scale.pools] for line in _compare(stage, url, telegram, pool)]


def _compare(stage: Stage, url: str, telegram: Simulator, pool: tuple[str, ...]) -> list[Result]:
    ours, bare = (Talker(stage, url, telegram, pool, handler) for handler in ("journaled", "bare"))
    rates = alternate(stage.scale.rounds, {each.handler: each.measure for each in (ours, bare)})
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
class Talker:
    """A worker with one of the handlers of bench.talker. `times_ms` is the median time of a call in each round."""

    stage: Stage
    url: str
    telegram: Simulator
    pool: tuple[str, ...]
    handler: str
    times_ms: list[float] = field(default_factory=list)

    def measure(self) -> float:
        """Updates per second."""
        total, times = self.stage.scale.calls, self.stage.directory / "calls"
        times.unlink(missing_ok=True)
        settings = poller_settings(self.telegram, self.url)
        with emptied(self.url):
            self.telegram.reset()
            intake = Intake.connect(load(settings, env_file=None))
            updates = list(make_updates(total, CHATS))
            for at in range(0, total, BATCH):
                intake.append(updates[at : at + BATCH])
            command = worker("tasks", self.url, *self.pool)
            own = {"BOT": f"bench.talker:{self.handler}", CALLS: str(times)}
            with self.stage.child(f"{self.handler}-worker", *command, **settings, **own) as child:
                rate = measure(intake.pending, total, [child])
            intake.close()
        self.times_ms.append(median(map(float, times.read_text().splitlines())))
        self.stage.report(f"{' '.join(self.pool)} {self.handler}: {rate:,.0f}/s, {self.times_ms[-1]:.2f} ms a call")
        return rate
