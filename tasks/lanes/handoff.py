"""The short way back from where a task ran to the process that settles it: a pipe.

Promises that a report is read whole or not at all, and that it never blocks its writer. Does not promise that it
arrives: a full pipe drops it, and Celery's own acknowledgement, which takes the long way, says the same again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import NamedTuple

from tasks.lanes import clock

#: A write up to this size is atomic, so that reports of several processes never mix (pipe(7)).
_ATOMIC = 512
_WANTED_SIZE = 1 << 20
STARTED, DONE, GONE, DELAYED = "*", "+", "-", "~"


class Report(NamedTuple):
    """`at_s` (clock.now_s) is when it was made."""

    what: str
    tag: str
    at_s: float


class Handoff:
    """Made in the worker's main process before its children are forked, which inherit the writing end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        self._rest = b""
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # more than this user may have: the usual 64 KiB do as well
                fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, _WANTED_SIZE)

    def report(self, what: str, tag: str) -> None:
        """Say that a delivery has STARTED, is DONE (settle it), or is to be forgotten: it was put off (DELAYED), or
        committed or buried (GONE).
        """
        self._write(f"{what}{tag} {clock.now_s():.6f}\n".encode())

    def wake(self) -> None:
        """Make the reading end readable, so that a loop that polls it goes round once more."""
        self._write(b"\n")

    def read(self) -> list[Report]:
        """All that was reported since the last time. Only one thread at a time may read."""
        reports: list[Report] = []
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.reader, _WANTED_SIZE):
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                reports += [_report(line.decode()) for line in lines if line]
        return reports

    def close(self) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def _write(self, line: bytes) -> None:
        if len(line) <= _ATOMIC:
            with contextlib.suppress(OSError):  # full, or closed by a worker that has just stopped
                os.write(self._writer, line)


def _report(line: str) -> Report:
    tag, _, at_s = line[1:].rpartition(" ")
    return Report(line[:1], tag, float(at_s))
