"""A part of the system as a process of its own, in a group of its own: to be watched, stopped, frozen and killed.

Promises that nothing of it is left after `end`, and that nothing secret stands in what it said.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from chatlanes.settings import Settings
from tests.support import ROOT
from tests.support.waiting import WITHIN_S, until

#: Settings of the developer's own must not reach a test. `FAST=0 pytest` must.
OURS = {name.upper() for name in Settings.model_fields} - {"FAST"}

#: So many characters of its output are shown when a test fails.
SHOWN = 20_000


class Process:
    """Its output, of both kinds, goes to a file. It runs in `directory`, where no .env is."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, settings: Mapping[str, object], secrets: Sequence[str]
    ) -> None:
        self.name = name
        self._secrets = secrets
        self._log_file = directory / f"{name}.log"
        outside = {name: value for name, value in os.environ.items() if name not in OURS}
        ours = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "NO_PROXY": "127.0.0.1"}
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env={**outside, **ours, **{name: str(value) for name, value in settings.items()}},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log_file.read_text(errors="replace")

    def tells(self, text: str) -> None:
        """Waits until it has said this."""
        until(lambda: text in self.log or not self.is_running())
        assert text in self.log, f"{self.name} ended with {self._process.returncode} without saying {text!r}"

    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Its main process, as a deploy would."""
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        self.ask_to_stop()
        assert self.exit_code() == 0, self.name

    def kill_main(self) -> None:
        """The main process only, as the out-of-memory killer would."""
        self._process.kill()
        self._process.wait(WITHIN_S)

    def kill_all(self) -> None:
        """All its processes at once, as the end of its machine."""
        self._signal_all(signal.SIGKILL)
        self._process.wait(WITHIN_S)

    def freeze(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """To its main process."""
        self._process.send_signal(number)

    def _signal_all(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def exit_code(self) -> int:
        """Waits for its end."""
        return self._process.wait(WITHIN_S)

    def end(self) -> None:
        """After a test, whatever became of it."""
        if self.is_running():
            self.kill_all()
        print(f"----- {self.name}\n{self.log[-SHOWN:]}")
        for secret in self._secrets:
            assert secret not in self.log, f"{self.name} told a secret"
