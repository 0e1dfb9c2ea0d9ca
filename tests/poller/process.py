"""A real `chatlanes poller` process."""

import os
import signal
import sys
import time
from pathlib import Path
from threading import Thread

from tests.support.bot_api import TOKEN
from tests.support.forks import python_environment, start
from tests.support.outside import IMPORTED, outside
from tests.support.waiting import WITHIN_S, until


class RunningPoller:
    """`lines` has the log lines so far; a thread reads them."""

    def __init__(self, directory: Path, *arguments: str, **settings: object) -> None:
        """`settings` by their names in the environment; `directory` must not have a .env file."""
        given = {name: str(value) for name, value in settings.items()}
        env = {**outside(), **python_environment(os.environ), "NO_PROXY": "127.0.0.1", **given}
        self.lines: list[str] = []
        reading, writing = os.pipe()
        self._output = os.fdopen(reading, encoding="utf-8")
        with os.fdopen(writing, "wb") as output:
            command = [sys.executable, "-m", "chatlanes.poller", *arguments]
            self._process = start(command, directory, env, output, IMPORTED)
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        for line in self._output:
            self.lines.append(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        return self._process.pid

    def told(self, text: str) -> list[str]:
        """The lines so far that contain this text."""
        return [line for line in self.lines if text in line]

    def tells(self, text: str, times: int = 1) -> str:
        """Waits until this many lines of the log contain the text; returns the last of them."""
        found = until(lambda: (lines := self.told(text))[times - 1 :] or (self.has_ended and ["(ended)", *lines]))
        assert found[0] != "(ended)", f"the poller ended without logging {text!r}: {self.lines}"
        return found[-1]

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None and not self._reading.is_alive()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Stops it and checks that it exits cleanly; returns the seconds that took."""
        began_s = time.monotonic()
        self.signal(how)
        assert (code := self.exit_code()) == 0, (code, self.lines)
        return time.monotonic() - began_s

    def signal(self, how: signal.Signals) -> None:
        self._process.send_signal(how)

    def kill(self) -> None:
        """SIGKILL, like a crash of the process."""
        self._process.kill()
        self.exit_code()

    def exit_code(self) -> int:
        """Waits for its end."""
        code = self._process.wait(WITHIN_S)
        self._reading.join(WITHIN_S)
        return code

    def end(self) -> None:
        """Ends it after a test. Its log must not contain the token."""
        if self._process.poll() is None:
            self.kill()
        self._output.close()
        assert TOKEN.partition(":")[2] not in "\n".join(self.lines)
