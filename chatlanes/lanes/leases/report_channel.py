"""The report channel: a pipe from the process that runs a task to the worker's main process, which settles it.

Guarantees that a report is read whole or not at all, and never blocks its writer. Does not guarantee that it arrives: a
full pipe drops reports. Celery's own result, sent separately, then has the same effect.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import NamedTuple

from chatlanes.lanes.runtime import clock
from chatlanes.lanes.runtime.pipes import End

#: A write up to this size is atomic, so reports of several processes never interleave (pipe(7)).
_ATOMIC = 512
_WANTED_SIZE = 1 << 20
#: Bytes per read. Usually one byte is there.
_CHUNK = 1 << 16
#: The kinds of report. STARTED: the run has started. DONE: settle the message. GONE: the run has committed or buried
#: it. DELAYED: the run has retried or parked it. RELEASED: release it uncounted, whether it has started or not.
#: INTERRUPTED: another worker may have it, and its run has not ended.
STARTED, DONE, GONE, DELAYED, RELEASED, INTERRUPTED = "*", "+", "-", "~", "<", "!"


class Report(NamedTuple):
    """`at_s` (clock.now_s) is when the report was made."""

    what: str
    tag: str
    at_s: float


class ReportChannel:
    """Created in the worker's main process before it forks its children, which inherit the writing end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._ends = End(self.reader), End(self._writer)
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        self._rest = b""
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # above this user's limit: the default of 64 KiB is enough
                fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, _WANTED_SIZE)

    def report(self, what: str, tag: str) -> None:
        """Write a report of one of the kinds above."""
        self._write(line_of(what, tag))

    def begins(self, tag: str) -> bool:
        """In a child: report that the message starts. False: it must no longer start."""
        self.report(STARTED, tag)
        return True

    def is_intact(self) -> bool:
        """False: a task has closed the pipe, and probably all other descriptors of this process."""
        return all(end.is_intact() for end in self._ends)

    def wake(self) -> None:
        """Make the reading end readable, which wakes a loop that polls it."""
        self._write(b"\n")

    def has_reports(self) -> bool:
        """True if reports are waiting outside the pipe. Makes no system call."""
        return False

    def read(self) -> list[Report]:
        """All reports since the last call. Only one thread may read at a time."""
        reports: list[Report] = []
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.reader, _CHUNK):
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                reports += [report_of(line.decode()) for line in lines if line]
                if len(chunk) < _CHUNK:
                    break
        return reports

    def read_children(self) -> list[Report]:
        """The reports that `has_reports` has found."""
        return []

    def close(self) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def _write(self, line: bytes) -> None:
        if len(line) <= _ATOMIC and self._ends[1].is_intact():
            with contextlib.suppress(OSError):  # full, or closed by a worker that has just stopped
                os.write(self._writer, line)


def line_of(what: str, tag: str) -> bytes:
    return f"{what}{tag} {clock.now_s():.6f}\n".encode()


def report_of(line: str) -> Report:
    tag, _, at_s = line[1:].rpartition(" ")
    return Report(line[:1], tag, float(at_s))
