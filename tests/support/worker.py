"""Real `celery worker` processes, in groups of their own, to be stopped, frozen and killed.

Promises that `Worker(…)` returns when the worker consumes, and that nothing of it is left after `end`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from tests.support import ROOT
from tests.support.waiting import WITHIN_S, until

READY = " ready."


def environment(settings: dict[str, Any], more: dict[str, str]) -> dict[str, str]:
    """For `celery -A tests.support.lab_app`: `settings` are the arguments of app.build."""
    return {**os.environ, "LANES_TEST": json.dumps(settings), **more}


class Worker:
    """`settings` are the arguments of app.build; `name` is what it is called in the history."""

    def __init__(
        self,
        name: str,
        directory: Path,
        settings: dict[str, Any],
        *,
        pool: str,
        slots: int,
        arguments: Sequence[str] = (),
        env: dict[str, str] | None = None,
        is_awaited: bool = True,
        asks_neighbours: bool = False,
    ) -> None:
        self.name = name
        self.log_file = directory / f"{name}.log"
        command = [sys.executable, "-m", "celery", "-A", "tests.support.lab_app", "worker", "--loglevel", "INFO"]
        command += ["--pool", pool, "--concurrency", str(slots), "--hostname", f"{name}@test", *arguments]
        if not asks_neighbours:  # saves each worker a second
            command.append("--without-mingle")
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(settings, {"LANES_WORKER": name, **(env or {})}),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if is_awaited:
            self.tells(READY)

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def tells(self, text: str) -> None:
        """Waits for the log to hold this text."""
        until(lambda: text in self.log or self.process.poll() is not None)
        assert text in self.log, f"{self.name} ended with {self.process.returncode} without telling {text!r}"

    def children(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]

    def stop(self) -> None:
        """A warm shutdown, as a deploy asks for it."""
        self.ask_to_stop()
        assert self.exit_code() == 0

    def ask_to_stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """The main process only, as the out-of-memory killer would."""
        self.process.kill()
        self.process.wait(WITHIN_S)

    def kill_all(self) -> None:
        """All its processes at once, as the end of its machine."""
        self._signal_all(signal.SIGKILL)
        self.process.wait(WITHIN_S)

    def freeze(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def exit_code(self) -> int:
        return self.process.wait(WITHIN_S)

    def end(self) -> None:
        """After a test, whatever became of it."""
        if self.process.poll() is None:
            self.kill_all()
        print(f"----- {self.name}\n{self.log}")

    def _signal_all(self, how: signal.Signals) -> None:
        """To its own process group: the main process and its children."""
        os.killpg(self.process.pid, how)
