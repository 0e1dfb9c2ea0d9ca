"""Another task queue on Redis, in an environment of its own: how it is filled, counted and run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from redis import Redis

from bench import ondemand
from bench.contenders import Setting
from bench.stage import BenchFailedError
from bench.updates import Update

APPS = Path(__file__).resolve().parent / "apps"
Choice = tuple[str, Mapping[str, str], Sequence[str], int]


@dataclass(frozen=True)
class Peer:
    """`choices` are (label, environment, program and arguments, how many of it); URL in an argument is the server's."""

    name: str
    app: str
    packages: Sequence[str]
    count: Callable[[Redis], int]
    choices: Sequence[Choice]
    always: Mapping[str, str] = field(default_factory=dict)
    how: str = ""

    def load(self, client: Redis, url: str, updates: Iterable[Update]) -> None:
        lines = b"\n".join(orjson.dumps(update) for update in updates)
        command = [str(self._programs() / "python"), "-c", f"import {self.app}; {self.app}.fill()"]
        ran = subprocess.run(command, input=lines, capture_output=True, env=self._environment(url), timeout=600)
        if ran.returncode:
            raise BenchFailedError(f"filling {self.name}: {ran.stderr.decode().strip()[-500:]}")

    def left(self, client: Redis) -> int:
        return self.count(client)

    def settings(self, url: str) -> list[Setting]:
        return [
            Setting(label, [self._command(url, arguments)] * times, {**self._environment(url), **environment})
            for label, environment, arguments, times in self.choices
        ]

    def _command(self, url: str, arguments: Sequence[str]) -> list[str]:
        program, *rest = (argument.replace("URL", url) for argument in arguments)
        return [str(self._programs() / program), *rest]

    def _programs(self) -> Path:
        return ondemand.python(self.name.partition(" ")[0], self.packages)

    def _environment(self, url: str) -> dict[str, str]:
        return {**self.always, "BENCH_REDIS": url, "PYTHONPATH": str(APPS)}
