"""Who is raced for throughput: how each gets its backlog, how it is counted from outside, and how it may be run.

Promises that all of them get the same updates in the same server, and that each may be tried in several settings and is
then measured in its best.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from redis import Redis

from bench.pace import measure, until
from bench.sides import BacklogSide, worker
from bench.stage import Stage, emptied
from bench.team import signal_all
from bench.updates import Update, make_updates

#: Tasks that are done before the others come; and how much later than the first the last process may be ready.
WARM_UP, ALL_BEGUN_S = 50, 0.5


@dataclass(frozen=True)
class Setting:
    """One way to run a contender: a command line for each process that is started."""

    label: str
    commands: Sequence[Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)


class Contender(Protocol):
    @property
    def name(self) -> str: ...

    def load(self, client: Redis, url: str, updates: Iterable[Update]) -> None: ...

    def left(self, client: Redis) -> int: ...

    def settings(self, url: str) -> list[Setting]: ...


@dataclass(frozen=True)
class CeleryContender:
    """Stock Celery, or lanes in it: the same choice of pools, processes and prefetch."""

    side: BacklogSide
    #: (workers, options of each)
    choices: Sequence[tuple[int, tuple[str, ...]]]

    @property
    def name(self) -> str:
        return self.side.name

    def load(self, client: Redis, url: str, updates: Iterable[Update]) -> None:
        self.side.load(client, url, updates)

    def left(self, client: Redis) -> int:
        return self.side.left(client)

    def settings(self, url: str) -> list[Setting]:
        return [self._setting(url, count, options) for count, options in self.choices]

    def _setting(self, url: str, count: int, options: tuple[str, ...]) -> Setting:
        commands = [
            [sys.executable, "-m", *worker(self.side.app, url, *options, "-n", f"bench{n}@%h")] for n in range(count)
        ]
        label = " ".join(options).replace("--prefetch-multiplier ", "prefetch ×")
        return Setting(f"{count} × {label}", commands)


@dataclass(frozen=True)
class Race:
    """One contender on one server. `appendfsync` is the server's for as long as the backlog is worked off."""

    stage: Stage
    url: str
    contender: Contender
    appendfsync: str = "always"

    def best(self, size: int) -> tuple[Setting, float]:
        """Each setting once."""
        rates = [(self.measure(setting, size), setting) for setting in self.contender.settings(self.url)]
        rate, setting = max(rates, key=lambda tried: tried[0])
        return setting, rate

    def measure(self, setting: Setting, size: int) -> float:
        """Tasks per second. All processes are at work when they are frozen, and find the whole backlog afterwards."""
        with emptied(self.url) as client, ExitStack() as stack:
            client.config_set("appendfsync", "no")  # to load takes as long for everyone
            self.contender.load(client, self.url, make_updates(WARM_UP, self.stage.scale.chats))
            children = [
                stack.enter_context(
                    self.stage.foreign(f"{self.contender.name}-{number}", command, **setting.environment)
                )
                for number, command in enumerate(setting.commands)
            ]
            until(lambda: self.contender.left(client) == 0, children, f"{self.contender.name} has begun")
            time.sleep(ALL_BEGUN_S)
            signal_all(children, signal.SIGSTOP)
            self.contender.load(client, self.url, make_updates(size, self.stage.scale.chats, first=WARM_UP + 1))
            client.config_set("appendfsync", self.appendfsync)
            signal_all(children, signal.SIGCONT)
            rate = measure(lambda: self.contender.left(client), size, children)
        self.stage.tell(f"{self.contender.name}, {setting.label}, {self.appendfsync}, {size}: {rate:,.0f}/s")
        return rate
