"""Runs several processes as one: shows their output side by side, and stops all when one ends.

Promises that SIGTERM reaches each part's main process only, which gets time to finish its work; what is still there
then is killed. Does not start a part again: here, who ends has a reason, and it should be read.
"""

import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from honcho.compat import ProcessManager
from honcho.manager import Manager
from honcho.printer import Printer

from sandbox.parts import Part

#: A worker finishes its running handlers first; handlers that take longer are run again after the next start.
STOP_WITHIN_S = 30.0

STDOUT = 1


class _MainProcess(ProcessManager):  # type: ignore[misc]
    """honcho signals the whole process group, which would kill the pool's children in the middle of their handlers."""

    def terminate(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


class _Output:
    """Standard output without a buffer: honcho also prints from its signal handlers, in the middle of another line."""

    def write(self, text: str) -> None:
        left = text.encode()
        while left:
            left = left[os.write(STDOUT, left) :]

    def flush(self) -> None:
        """There is nothing to flush."""

    def isatty(self) -> bool:
        return os.isatty(STDOUT)


class _Printer(Printer):  # type: ignore[misc]
    """A terminal that was closed must not keep us from stopping what it showed."""

    def write(self, message: Any) -> None:
        with suppress(OSError):
            super().write(message)


class Supervisor(Manager):  # type: ignore[misc]
    """`foundations` are processes that others start and stop: the parts stop when one of them is gone."""

    def __init__(self, foundations: Mapping[str, Callable[[], bool]]) -> None:
        super().__init__(_Printer(_Output()))
        self._procmgr = _MainProcess()
        self._foundations = foundations
        self._stop_asked = False
        self._kill_at = float("inf")
        self._ended_first: str | None = None

    def add(self, part: Part, environment: dict[str, str]) -> None:
        # exec: the shell between would swallow the signals.
        self.add_process(part.name, f"exec {shlex.join(part.command)}", env=environment)

    def run(self) -> str | None:
        """Until SIGINT, SIGTERM, or the end of one part. Returns the name of the part that ended by itself."""
        self.loop()
        return self._ended_first

    # What follows is called by honcho's loop: about ten times a second, and from its signal handlers.

    def terminate(self) -> None:
        self._stop_asked = True
        # A part whose pid is not known yet cannot be told: the loop asks again when all have started.
        if self._all_started():
            self._kill_at = min(self._kill_at, time.monotonic() + STOP_WITHIN_S)
            super().terminate()

    def kill(self) -> None:
        if time.monotonic() > self._kill_at:
            super().kill()

    def _any_stopped(self) -> bool:
        if not self._stop_asked and self._ended_first is None:
            self._ended_first = next(iter(self._ended()), None)
        return self._stop_asked or self._ended_first is not None

    def _ended(self) -> list[str]:
        """Foundations first: whatever stands on them falls with them."""
        fallen = [name for name, is_running in self._foundations.items() if not is_running()]
        return fallen + [name for name, part in self._processes.items() if part.get("returncode") is not None]
