"""One child process: its output line by line, and its exit.

Whatever it leaves running when it ends, such as the children of a killed worker, is killed too.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

from chatlanes.sandbox.parent_death import terminate_with_parent

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
