"""Another task queue on Redis, in its own environment: how it is filled, counted and run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE

import orjson
from redis import Redis

from bench.load.updates import Update
from bench.measure.harness import BenchFailedError
from bench.systems import install
from bench.systems.contenders import Fill, Setting

APPS = Path(__file__).resolve().parent / "apps"
Choice = tuple[str, Mapping[str, str], Sequence[str], int]


@dataclass(frozen=True)
class PeerQueue:
    """`choices` are (label, environment, program and arguments, number of processes); URL stands for the server's."""

    name: str
    app: str
    packages: Sequence[str]
    count: Callable[[Redis], int]
    choices: Sequence[Choice]
    always: Mapping[str, str] = field(default_factory=dict)
    how: str = ""

    @contextmanager
    def filler(self, client: Redis, url: str) -> Iterator[Fill]:
        """A process with the peer's own client. It starts with the peer and runs for the whole measurement."""
        command = [str(self._programs() / "python"), "-c", f"import {self.app}; {self.app}.fill()"]
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, env=self._environment(url)) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            source, answers = process.stdin, process.stdout

            def fill(updates: Iterable[Update]) -> None:
                source.writelines(orjson.dumps(update) + b"\n" for update in updates)
                source.write(b"\n")
                source.flush()
                if not answers.readline():
                    raise BenchFailedError(f"filling {self.name} failed: its client ended")

            try:
                yield fill
            finally:
                process.kill()

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
        return install.python(self.name.partition(" ")[0], self.packages)

    def _environment(self, url: str) -> dict[str, str]:
        return {**self.always, "BENCH_REDIS": url, "PYTHONPATH": str(APPS)}
