"""The contenders of a throughput comparison: how each is filled, counted from outside, and run.

All of them get the same updates on the same server. Each is tried in several settings and then measured in its best,
the contenders alternating.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from redis import Redis

from bench.load.updates import Update, make_updates
from bench.measure.backlog_rate import measure, until
from bench.measure.figures import Side
from bench.measure.harness import Harness, emptied
from bench.measure.rounds import alternate, best
from bench.systems.backlogs import BacklogSide, worker
from bench.systems.worker_group import signal_all

#: Tasks run before the measurement; the time allowed between the first ready process and the last.
WARM_UP, ALL_BEGUN_S = 50, 0.5


@dataclass(frozen=True)
class Setting:
    """One way to run a contender: one command line per process."""

    label: str
    commands: Sequence[Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)


#: Returns when all of these updates are in Redis.
Fill = Callable[[Iterable[Update]], None]


class Contender(Protocol):
    """A queue that takes part in the comparison. `how` notes what applies in every setting."""

    @property
    def name(self) -> str: ...

    @property
    def how(self) -> str: ...

    def filler(self, client: Redis, url: str) -> AbstractContextManager[Fill]: ...

    def left(self, client: Redis) -> int: ...

    def settings(self, url: str) -> list[Setting]: ...


#: A group of Celery workers: a label, and the options of each worker.
WorkerOptions = tuple[str, Sequence[Sequence[str]]]


def worker_options(count: int, *options: str) -> WorkerOptions:
    """`count` identical workers."""
    return f"{count} × {' '.join(options).replace('--prefetch-multiplier ', 'prefetch ×')}", [options] * count


#: Pools that suit a task that takes no time; for lanes and stock Celery alike.
WORKER_OPTIONS = (
    worker_options(2, "-P", "solo", "--prefetch-multiplier", "16"),
    worker_options(2, "-P", "solo", "--prefetch-multiplier", "128"),
    worker_options(2, "-P", "threads", "-c", "8", "--prefetch-multiplier", "16"),
    worker_options(1, "-P", "threads", "-c", "8", "--prefetch-multiplier", "16"),
)


@dataclass(frozen=True)
class CeleryContender:
    """Stock Celery or lanes."""

    side: BacklogSide
    choices: Sequence[WorkerOptions]
    how: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.side.name

    @contextmanager
    def filler(self, client: Redis, url: str) -> Iterator[Fill]:
        yield partial(self.side.load, client, url)

    def left(self, client: Redis) -> int:
        return self.side.left(client)

    def settings(self, url: str) -> list[Setting]:
        return [Setting(label, list(self._commands(url, workers)), self.environment) for label, workers in self.choices]

    def _commands(self, url: str, workers: Sequence[Sequence[str]]) -> Iterator[list[str]]:
        for number, options in enumerate(workers):
            yield [sys.executable, "-m", *worker(self.side.app, url, *options, "-n", f"bench{number}@%h")]


def compare(
    harness: Harness, url: str, contenders: Sequence[Contender], appendfsync: str = "always"
) -> dict[str, Side]:
    """Sides by name. A trial run picks the fastest setting of each contender and the number of tasks it gets."""
    runs = {}
    for contender in contenders:
        entry = BacklogRun(harness, url, contender, appendfsync)
        trial = harness.scale.trial.get(contender.name, harness.scale.trial["others"])
        setting, rate = best(contender.settings(url)[: harness.scale.settings], partial(entry.measure, size=trial))
        runs[contender.name] = (entry, setting, max(trial, round(rate * harness.scale.measured_s)))
    measured = alternate(
        harness.scale.rounds,
        {name: partial(entry.measure, setting, size) for name, (entry, setting, size) in runs.items()},
    )
    return {
        name: Side(name, measured[name], "; ".join(filter(None, (setting.label, entry.contender.how))))
        for name, (entry, setting, _) in runs.items()
    }


@dataclass(frozen=True)
class BacklogRun:
    """One contender on one server. `appendfsync` applies while the backlog is processed."""

    harness: Harness
    url: str
    contender: Contender
    appendfsync: str

    def measure(self, setting: Setting, size: int) -> float:
        """Tasks per second. All processes are started, stopped while the whole backlog is loaded, and continued."""
        with emptied(self.url) as client, ExitStack() as stack:
            client.config_set("appendfsync", "no")  # loading takes equally long for all contenders
            fill = stack.enter_context(self.contender.filler(client, self.url))
            children = [
                stack.enter_context(
                    self.harness.foreign(f"{self.contender.name}-{number}", command, **setting.environment)
                )
                for number, command in enumerate(setting.commands)
            ]
            fill(make_updates(WARM_UP, self.harness.scale.chats))
            until(lambda: self.contender.left(client) == 0, children, f"{self.contender.name} has begun")
            time.sleep(ALL_BEGUN_S)
            signal_all(children, signal.SIGSTOP)
            fill(make_updates(size, self.harness.scale.chats, first=WARM_UP + 1))
            client.config_set("appendfsync", self.appendfsync)
            signal_all(children, signal.SIGCONT)
            rate = measure(lambda: self.contender.left(client), size, children, to_the_end=False)
        self.harness.report(f"{self.contender.name}, {setting.label}, {self.appendfsync}, {size}: {rate:,.0f}/s")
        return rate
