"""One part of the sandbox: its process, its output line by line, and what happens after its exit.

Whatever a process leaves running when it ends, such as the children of a killed worker, is killed too. A part that was
killed or ended with code 0 is restarted. One that ended with an error is not: a restart would bury its message.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from celery_lanes.embedded_server import terminate_with_parent
from chatlanes_sandbox.plan import Part

#: Lines kept of the end of its output, for error messages.
KEPT_LINES = 60
READ_AT_ONCE = 1 << 16
#: Read at most this much from one process before the others.
MOST_READ = 1 << 20


class ChildProcess:
    """In a session of its own: Ctrl-C in a terminal reaches only us. It ends when we are killed."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=terminate_with_parent(),
        )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        self._output = self._process.stdout
        os.set_blocking(self.fileno(), False)
        self._begun = b""
        self.said: deque[str] = deque(maxlen=KEPT_LINES)
        self.started_s = time.monotonic()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        return self._output.fileno()

    def lines(self) -> list[str] | None:
        """The whole lines written since the last call; None: the output has ended."""
        read, is_over = self._read()
        *whole, self._begun = (self._begun + read).split(b"\n")
        if is_over and self._begun:
            whole, self._begun = [*whole, self._begun], b""
        lines = [line.decode(errors="replace").rstrip("\r") for line in whole]
        self.said.extend(lines)
        return None if is_over and not lines else lines

    def _read(self) -> tuple[bytes, bool]:
        """The output that is there, and whether it has ended."""
        read = b""
        with suppress(BlockingIOError):
            while len(read) < MOST_READ:
                more = os.read(self.fileno(), READ_AT_ONCE)
                if not more:
                    return read, True
                read += more
        return read, False

    def terminate(self) -> None:
        """SIGTERM to its main process only: the children of a pool finish their handlers."""
        if self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        if self._process.poll() is None:
            self._kill_all()

    def wait(self) -> None:
        self._process.wait()

    def ended(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        code = self._process.poll()
        if code is not None:
            self._kill_all()
        return code

    def _kill_all(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        self._output.close()


#: A part that ran for less than this is restarted after a pause, from the second time on.
SHORT_LIFE_S = 10.0
LONGEST_PAUSE_S = 30.0


NEVER = float("inf")


def restart_after_s(code: int, short_lives: int) -> float:
    """The pause before the restart; NEVER after an error. `code` is negative for a signal. `short_lives`: how many runs
    in a row were short, this one included.
    """
    if code > 0:
        return NEVER
    return 0.0 if short_lives < 2 else min(2.0 ** (short_lives - 2), LONGEST_PAUSE_S)


@dataclass
class ManagedPart:
    """`start_at_s` is a time of the monotonic clock; NEVER: until `restart`."""

    part: Part
    environment: Mapping[str, str]
    start_at_s: float = 0.0
    running: ChildProcess | None = None
    short_lives: int = 0
    #: Killed on request of the page, and not restarted yet.
    killed: bool = False

    @property
    def is_due(self) -> bool:
        return self.running is None and time.monotonic() >= self.start_at_s

    def start(self) -> ChildProcess:
        self.running = ChildProcess(self.part.command, self.environment)
        self.start_at_s = NEVER
        self.killed = False
        return self.running

    def kill(self) -> None:
        """On request of the page."""
        if self.running:
            self.killed = True
            self.running.kill()

    def restart(self) -> None:
        """Start at once, or after the end of the process that runs."""
        self.short_lives = 0
        if self.running is None:
            self.start_at_s = 0.0

    def handle_exit(self, code: int) -> bool:
        """The process has ended with this code. True if it restarts by itself."""
        assert self.running is not None  # noqa: S101 - only a process that runs can end
        lived_s = time.monotonic() - self.running.started_s
        self.short_lives = self.short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        self.running.close()
        self.running = None
        self.start_at_s = time.monotonic() + restart_after_s(code, self.short_lives)
        return self.start_at_s < NEVER
