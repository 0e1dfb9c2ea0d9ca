"""Replaces the pipe for the reports of forked children with memory that each child shares with its parent.

Guarantees that a line is read whole or not at all, in the order of writing, even if its writer was killed. Writing and
reading make no system call and wake no process.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from chatlanes.lanes.leases.report_channel import RELEASED, STARTED, Report, ReportChannel, line_of, report_of
from chatlanes.lanes.runtime import clock, os_threads

#: Hundreds of lines: many more than a child can write before its parent, while it sends jobs, reads them.
SIZE = 1 << 16
#: Two counters: total bytes written, total bytes read.
_HEAD = 16
#: The pause of a child while its memory is full, until its parent reads it or ends the child.
_FULL_PAUSE_S = 0.001
#: A report about a job of the pool, by its number, instead of a delivery: the job has started.
_ACCEPTED = "a"


class Ring:
    """Created by the parent before it forks. One process writes, from any thread; only one thread reads at a time."""

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, _HEAD + SIZE))
        self._counts = memory[:_HEAD].cast("Q")
        self._lines = memory[_HEAD:]
        # Reentrant: a signal handler may raise in a thread that holds it.
        self._writing = threading.RLock()
        self._fence = os_threads.lock()

    def write(self, line: bytes) -> bool:
        """Append a line. False: the memory is full."""
        with self._writing:
            written, length = self._counts[0], len(line)
            if length > SIZE - (written - self._counts[1]):
                return False
            at = written % SIZE
            until_end = min(length, SIZE - at)
            self._lines[at : at + until_end] = line[:until_end]
            self._lines[: length - until_end] = line[until_end:]
            # A writer that is killed before the counter is set has written nothing. The lock is a memory barrier: the
            # line is stored before the counter.
            with self._fence:
                pass
            self._counts[0] = written + length
        return True

    def has_lines(self) -> bool:
        return self._counts[0] != self._counts[1]

    def read(self) -> bytes:
        """All lines written since the last call."""
        written, seen = self._counts[0], self._counts[1]
        with self._fence:
            pass
        at, length = seen % SIZE, written - seen
        lines = bytes(self._lines[at : at + length])
        lines += bytes(self._lines[: length - len(lines)])
        self._counts[1] = written
        return lines


class ChildReports:
    """The reports of one child. `accepted` are the numbers of the pool's jobs that it started, each with the time."""

    def __init__(self) -> None:
        self.ring = Ring()
        self.accepted: deque[tuple[int, float]] = deque()


class SharedMemoryChannel(ReportChannel):
    """The report channel of a prefork pool. A process without shared memory, or whose memory is full, uses the pipe."""

    def __init__(self) -> None:
        super().__init__()
        self._ring: Ring | None = None  # set in a child
        self._owner: int | None = None  # the child's pid: its own children must not write to its memory
        self.start_by_s: float | None = None  # in a child: its job must not start later than this (clock.now_s)
        self._children: tuple[ChildReports, ...] = ()

    @contextmanager
    def child(self) -> Iterator[ChildReports]:
        """A process that is forked inside this context writes its reports to the memory of the ChildReports."""
        child = ChildReports()
        self._ring = child.ring
        self._children += (child,)
        try:
            yield child
        finally:
            self._ring = None

    def set_owner(self) -> None:
        """Called in the child after the fork."""
        self._owner = os.getpid()

    def forget(self, child: ChildReports) -> None:
        """Called when the child has exited and all its reports were read."""
        self._children = tuple(each for each in self._children if each is not child)

    def accept(self, job: int, at_s: float) -> bool:
        """Report that a job of the pool starts. False: this process has no shared memory, or it is full."""
        return self._ring is not None and self._ring.write(f"{_ACCEPTED}{job} {at_s:.6f}\n".encode())

    def report(self, what: str, tag: str) -> None:
        if self._ring is None or self._owner != os.getpid() or not self._ring.write(line_of(what, tag)):
            super().report(what, tag)

    def begins(self, tag: str) -> bool:
        """Report that the message starts. False: it must no longer start.

        The parent releases a job if it has no report of its start by `start_by_s`. So the child reports first and reads
        the clock afterwards: it never runs a job that the parent releases.
        """
        if self._ring is None or self.start_by_s is None:
            return super().begins(tag)
        # Both reports must arrive, in this order: otherwise a running job could be released, or another one settled.
        _write_until_stored(self._ring, line_of(STARTED, tag))
        if clock.now_s() < self.start_by_s:
            return True
        _write_until_stored(self._ring, line_of(RELEASED, tag))
        return False

    def has_reports(self) -> bool:
        return any(child.ring.has_lines() for child in self._children)

    def read(self) -> list[Report]:
        return self.read_children() + super().read()

    def read_children(self) -> list[Report]:
        reports: list[Report] = []
        for child in self._children:
            if not child.ring.has_lines():
                continue
            *lines, _ = child.ring.read().decode().split("\n")
            for report in map(report_of, lines):
                if report.what == _ACCEPTED:
                    child.accepted.append((int(report.tag), report.at_s))
                else:
                    reports.append(report)
        return reports


def _write_until_stored(ring: Ring, line: bytes) -> None:
    while not ring.write(line):
        time.sleep(_FULL_PAUSE_S)
