"""The environment of a row: its own directory, Redis servers with appendfsync always, and child processes.

Everything that is started is ended: with a clean shutdown if the row succeeded, otherwise by force. A child that ends
by itself, or with an exit code other than 0 when stopped, fails the bench with the end of its log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from redis import Redis

from bench.measure.scale import Scale
from celery_lanes.embedded_server import start_server
from chatlanes.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
#: A warm shutdown waits for running tasks; those of the bench take no time.
STOP_WITHIN_S = 60.0
#: A rewrite of the append-only file during a round would slow down one side only.
SERVER_OPTIONS = ("--auto-aof-rewrite-percentage", "0")


class BenchFailedError(RuntimeError):
    """A measured program failed."""


class Harness:
    """The environment of one run of the bench. `scale` says how much to measure."""

    def __init__(self, directory: Path, scale: Scale) -> None:
        self.directory = directory
        self.scale = scale

    @contextmanager
    def server(self, name: str) -> Iterator[str]:
        """Starts an empty server; yields its URL."""
        data = tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory)
        with start_server(data, extra=SERVER_OPTIONS) as server:
            yield server.url

    @contextmanager
    def child(self, name: str, *arguments: str, **environment: str) -> Iterator[BenchProcess]:
        """Runs `python -m <arguments>` until the block ends, then stops it."""
        with self.foreign(name, [sys.executable, "-m", *arguments], **environment) as child:
            yield child
            child.stop()

    @contextmanager
    def foreign(self, name: str, command: Sequence[str], **environment: str) -> Iterator[BenchProcess]:
        """Runs any program; kills it with all its children when the block ends. Its shutdown is not checked."""
        child = BenchProcess(name, list(command), self.directory, _environment(environment))
        try:
            yield child
        finally:
            child.kill()

    def report(self, text: str) -> None:
        """Prints progress to stderr; the table goes to stdout."""
        print(f"  {text}", file=sys.stderr, flush=True)


class BenchProcess:
    """A process that runs until it is stopped."""

    def __init__(self, name: str, command: list[str], directory: Path, environment: dict[str, str]) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,  # a directory without a .env
                env=environment,
                # The bench handles Ctrl-C itself: it stops a measured process or kills it with all its children.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises BenchFailedError if it has ended."""
        if (code := self._process.poll()) is not None:
            raise BenchFailedError(f"{self.name} ended by itself with code {code}: {self._log_end()}")

    def has_printed(self, text: str) -> bool:
        return text in self.log.read_text(errors="replace")

    def stop(self) -> None:
        """Sends SIGTERM. Raises BenchFailedError if no clean exit follows."""
        self.check()
        self._process.terminate()
        try:
            code = self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BenchFailedError(f"{self.name} did not stop: {self._log_end()}") from None
        if code != 0:
            raise BenchFailedError(f"{self.name} stopped with code {code}: {self._log_end()}")

    def wait(self, within_s: float) -> int:
        """Its exit code. Raises BenchFailedError if it runs longer."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BenchFailedError(f"{self.name} took longer than {within_s:.0f} s: {self._log_end()}") from None

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _log_end(self) -> str:
        return " / ".join(self.log.read_text(errors="replace").strip().splitlines()[-5:]) or "its log is empty"


def _environment(given: dict[str, str]) -> dict[str, str]:
    """The environment of a child, without the developer's own settings; programs find the bench from any directory."""
    own = {field.upper() for field in Settings.model_fields}
    outside = {name: value for name, value in os.environ.items() if name not in own and not name.startswith("CELERY_")}
    return {**outside, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1", **given}


@contextmanager
def emptied(url: str) -> Iterator[Redis]:
    """A client of a server that has just been emptied."""
    with Redis.from_url(url) as client:
        # Valkey frees flushed keys in the background by default, which would disturb the next measurement.
        client.execute_command("FLUSHALL", "SYNC")
        yield client
