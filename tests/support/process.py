"""A part of the system in its own process and process group, which a test can watch, stop, freeze and kill.

After `end`, no process of the group is left. `end` fails if the output contains a secret.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile

import psutil

from tests.support.forks import CELERY, python_environment, start
from tests.support.waiting import WITHIN_S, until

#: When a test fails, the last characters of the output are shown, at most this many.
SHOWN_CHARACTERS = 20_000


class Process:
    """A process that runs in `directory`, which holds no .env. Its stdout and stderr go to one file. Its environment
    is `inherited` and `settings`. `imported`: see forks.py. `given` is what it reads from its stdin.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        settings: Mapping[str, object],
        secrets: Sequence[str] = (),
        *,
        inherited: Mapping[str, str] = os.environ,
        imported: tuple[str, ...] = CELERY,
        given: str = "",
    ) -> None:
        self.name = name
        self._secrets = secrets
        self._log_file = directory / f"{name}.log"
        defaults = {**python_environment(inherited), "NO_PROXY": "127.0.0.1"}
        env = {**inherited, **defaults, **{name: str(value) for name, value in settings.items()}}
        with self._log_file.open("wb") as log, TemporaryFile() as stdin:
            stdin.write(given.encode())
            stdin.seek(0)
            self._process = start(command, directory, env, log, imported, given=stdin)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log_file.read_text(errors="replace")

    def tells(self, text: str) -> None:
        """Wait until `text` is in the output."""
        until(lambda: text in self.log or not self.is_running())
        assert text in self.log, f"{self.name} exited with {self._process.returncode} without logging {text!r}"

    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the main process, as a deploy does."""
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        self.ask_to_stop()
        assert self.exit_code() == 0, self.name

    def kill_main(self) -> None:
        """Kill only the main process, as the out-of-memory killer does."""
        self._process.kill()
        self._process.wait(WITHIN_S)

    def kill_all(self) -> None:
        """Kill all processes of the group at once, as a power failure does."""
        self._signal_all(signal.SIGKILL)
        self._process.wait(WITHIN_S)

    def freeze(self) -> None:
        """Stop all its processes; they run no further when this returns."""
        self._signal_all(signal.SIGSTOP)
        group = [each for each in psutil.process_iter() if _group_of(each) == self._process.pid]
        until(lambda: all(_is_stopped(each) for each in group))

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the main process."""
        self._process.send_signal(number)

    def _signal_all(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)

    def exit_code(self) -> int:
        """Wait for the main process to exit."""
        return self._process.wait(WITHIN_S)

    def end(self) -> None:
        """Kill the processes that still run, print the log, and check it for secrets."""
        if self.is_running():
            self.kill_all()
        print(f"----- {self.name}\n{self.log[-SHOWN_CHARACTERS:]}")
        for secret in self._secrets:
            assert secret not in self.log, f"{self.name} logged a secret"


def _group_of(process: psutil.Process) -> int:
    """0: it has ended."""
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return 0


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True
