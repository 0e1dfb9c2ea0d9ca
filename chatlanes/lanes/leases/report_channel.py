"""The short way back from where a task ran to the process that settles it: memory shared with each child, and a pipe.

Promises that a report is read whole or not at all, that it never blocks its writer, and that what a child of ours said
before it died is read. Does not promise that it arrives from elsewhere, or that it wakes anybody: a full pipe drops it,
and Celery's own result, which takes the long way, says the same again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from chatlanes.lanes.fast.shared_memory import Ring
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.runtime.pipes import End

#: A write up to this size is atomic, so that reports of several processes never mix (pipe(7)).
_ATOMIC = 512
_WANTED_SIZE = 1 << 20
#: Read at once; most often there is one byte.
_CHUNK = 1 << 16
STARTED, DONE, GONE, DELAYED, RETURNED = "*", "+", "-", "~", "<"
#: The parent reads what fills its child's memory, or has ended it.
_ROOM_AFTER_S = 0.001
#: Not about a delivery: the pool's job of that number begins.
_ACCEPTED = "a"


class Report(NamedTuple):
    """`at_s` (clock.now_s) is when it was made."""

    what: str
    tag: str
    at_s: float


class Said:
    """What one child says. `accepted` are the numbers of the pool's jobs that it began, each with the time."""

    def __init__(self) -> None:
        self.ring = Ring()
        self.accepted: deque[tuple[int, float]] = deque()


class Handoff:
    """Made in the worker's main process before its children are forked, which inherit the writing end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._ends = End(self.reader), End(self._writer)
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        self._rest = b""
        self._ring: Ring | None = None  # ours, in a child
        self._owner: int | None = None  # its process: what that forks has no such memory
        self.start_by_s: float | None = None  # in a child: the job that it has now does not begin later (clock.now_s)
        self._children: tuple[Said, ...] = ()
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # more than this user may have: the usual 64 KiB do as well
                fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, _WANTED_SIZE)

    # -- children

    @contextmanager
    def child(self) -> Iterator[Said]:
        """Who is forked meanwhile, by this thread, says in the child's memory what it has to say."""
        child = Said()
        self._ring = child.ring
        self._children += (child,)
        try:
            yield child
        finally:
            self._ring = None

    def own(self) -> None:
        """In the child."""
        self._owner = os.getpid()

    def forget(self, child: Said) -> None:
        """It has ended, and all that it said was read."""
        self._children = tuple(each for each in self._children if each is not child)

    def accept(self, job: int, at_s: float) -> bool:
        """Say that the pool's job begins. False: there is no room, or no such memory; say it some other way."""
        return self._ring is not None and self._ring.write(f"{_ACCEPTED}{job} {at_s:.6f}\n".encode())

    # -- reports

    def report(self, what: str, tag: str) -> None:
        """Say that a delivery has STARTED, is DONE (settle it), or is to be forgotten: it was put off (DELAYED), or
        committed or buried (GONE). RETURNED: it did not start, see `begins`.
        """
        line = _line(what, tag)
        if self._ring is None or self._owner != os.getpid() or not self._ring.write(line):
            self._write(line)

    def begins(self, tag: str) -> bool:
        """In a child: say that the delivery has started, unless it is too late for that.

        Who has not heard of it by `start_by_s` takes it back. So it is said first, and the clock is read afterwards.
        """
        if self._ring is None or self.start_by_s is None:
            self.report(STARTED, tag)
            return True
        # Neither may get lost, or take another way: what runs would be taken back, and what did not, be settled.
        _write_for_certain(self._ring, _line(STARTED, tag))
        if clock.now_s() < self.start_by_s:
            return True
        _write_for_certain(self._ring, _line(RETURNED, tag))
        return False

    def is_intact(self) -> bool:
        """False: a task has closed the pipe, and all others of this process with it, most likely."""
        return all(end.is_intact() for end in self._ends)

    def wake(self) -> None:
        """Make the reading end readable, so that a loop that polls it goes round once more."""
        self._write(b"\n")

    def has_reports(self) -> bool:
        """Of children of ours. Costs no system call."""
        return any(child.ring.has_lines() for child in self._children)

    def read(self) -> list[Report]:
        """All that was reported since the last time. Only one thread at a time may read."""
        reports = self.read_children()
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self.reader, _CHUNK):
                *lines, self._rest = (self._rest + chunk).split(b"\n")
                reports += [_report(line.decode()) for line in lines if line]
                if len(chunk) < _CHUNK:
                    break
        return reports

    def read_children(self) -> list[Report]:
        """As read, but only what children of ours said."""
        reports: list[Report] = []
        for child in self._children:
            if not child.ring.has_lines():
                continue
            *lines, _ = child.ring.read().decode().split("\n")
            for report in map(_report, lines):
                if report.what == _ACCEPTED:
                    child.accepted.append((int(report.tag), report.at_s))
                else:
                    reports.append(report)
        return reports

    def close(self) -> None:
        os.close(self.reader)
        os.close(self._writer)

    def _write(self, line: bytes) -> None:
        if len(line) <= _ATOMIC:
            with contextlib.suppress(OSError):  # full, or closed by a worker that has just stopped
                os.write(self._writer, line)


def _write_for_certain(ring: Ring, line: bytes) -> None:
    while not ring.write(line):
        time.sleep(_ROOM_AFTER_S)


def _line(what: str, tag: str) -> bytes:
    return f"{what}{tag} {clock.now_s():.6f}\n".encode()


def _report(line: str) -> Report:
    tag, _, at_s = line[1:].rpartition(" ")
    return Report(line[:1], tag, float(at_s))
