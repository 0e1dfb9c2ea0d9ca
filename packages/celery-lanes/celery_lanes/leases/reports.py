"""Reports about a message, from the process that runs it to the in-flight table in the worker's main process.

Guarantees that a report is read whole or not at all, never blocks its writer, and is applied once; that those of one
process are applied in order, whichever thread reads them; and that a free slot or a queued ack wakes one of the threads
that send acks. Does not guarantee that a report arrives: a full pipe drops it. Celery's own result, sent separately,
then has the same effect.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from celery_lanes.runtime import clock, threads

#: A write up to this size is atomic, so reports of several processes never interleave (pipe(7)).
_ATOMIC = 512
_WANTED_SIZE = 1 << 20
#: Bytes per read. Usually one byte is there.
_CHUNK = 1 << 16
#: The kinds of report. STARTED: the run has started. DONE: settle the message. GONE: the run has committed or buried
#: it. DELAYED: the run has retried or parked it. RELEASED: release it uncounted, whether it has started or not.
#: REFUSED: the same, after Redis has refused a command of its run. INTERRUPTED: another worker may have it, and its run
#: has not ended.
STARTED, DONE, GONE, DELAYED, RELEASED, REFUSED, INTERRUPTED = "*", "+", "-", "~", "<", "?", "!"


class Report(NamedTuple):
    """`at_s` (clock.now_s) is when the report was made."""

    what: str
    tag: str
    at_s: float


class PipeEnd:
    """One end of a pipe, identified by its file descriptor.

    A task may close files that it does not own. Their descriptors are soon reused, for example for a connection to
    Redis, which a read or write through the old pipe would corrupt. A process whose pipe is not intact must end.
    """

    def __init__(self, fileno: int) -> None:
        self._fileno = fileno
        self._original = self._identity()

    def is_intact(self) -> bool:
        try:
            return self._identity() == self._original
        except OSError:
            return False

    def _identity(self) -> tuple[int, int]:
        found = os.fstat(self._fileno)
        return found.st_dev, found.st_ino


class ReportChannel:
    """Created in the worker's main process before it forks its children, which inherit the writing end."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        self._ends = PipeEnd(self.reader), PipeEnd(self._writer)
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
    if "\n" in tag or "\\" in tag:  # an older publisher accepted any id
        tag = tag.encode("unicode_escape").decode()
    return f"{what}{tag} {clock.now_s():.6f}\n".encode()


def report_of(line: str) -> Report:
    tag, _, at_s = line[1:].rpartition(" ")
    if "\\" in tag:
        tag = tag.encode().decode("unicode_escape")
    return Report(line[:1], tag, float(at_s))


class Reports:
    """The reports for one in-flight table. `apply` applies one, and returns True if that may have freed a slot."""

    def __init__(self, channel: ReportChannel, wakeups: Wakeups, apply: Callable[[Report], bool]) -> None:
        self._channel = channel
        self._wakeups = wakeups
        self._apply = apply
        self._pid = os.getpid()
        self._reading = threads.lock()
        self._poll: Callable[[], None] = self.read_children

    @property
    def is_owner(self) -> bool:
        """True in the process that owns the table. A forked child has a copy of it, and a channel to the owner."""
        return self._pid == os.getpid()

    def send(self, what: str, tag: str) -> None:
        """Report about a message, from the worker's main process or one of its children."""
        if not self.is_owner:
            self._channel.report(what, tag)
        elif self._apply(Report(what, tag, clock.now_s())):
            self._wakeups.slot_is_free()

    def read(self) -> None:
        """Apply all reports. Wakes no thread: the caller sends the acks next."""
        with self._reading:  # the consumer's thread and the background thread may both read
            reports = self._channel.read()
            # Reset after the read: if the read consumed a wake-up and the flag stayed set, nothing would wake the loop.
            self._wakeups.loop_was_woken()
            for report in reports:
                self._apply(report)

    def read_children(self) -> None:
        """Like `read`, but only the reports in shared memory. Makes no system call."""
        with self._reading:  # even if there is nothing to read: another thread may still be applying reports
            if self._channel.has_reports():
                for report in self._channel.read_children():
                    self._apply(report)

    def poll(self) -> None:
        """Like `read_children`, together with what the pool itself reads from its children."""
        self._poll()

    def poll_with(self, poll: Callable[[], None]) -> None:
        """Set by a pool that reads more than reports from its children. `poll` must call `read_children`."""
        self._poll = poll


#: While a fetch is in flight the loop is not woken, because the answer, usually within milliseconds, does that. After
#: this time the loop is woken all the same.
ANSWERED_WITHIN_S = 0.1


class Wakeups:
    """Wakes the two threads that send acks: the consumer's event loop, once for all events before its next iteration,
    and the background thread, which waits for the signal `background`.
    """

    def __init__(self, channel: ReportChannel) -> None:
        self.background = threads.Signal()
        self.last_fetch_s = 0.0  # clock.now_s; the last fetch carries all settles queued by then
        self._channel = channel
        self.consumers = 0  # channels that fetch; if there is none, the background thread settles
        self.is_background_idle = False  # the background thread waits for longer than a busy tick
        self._is_loop_woken = False
        self._answer_until_s = 0.0  # until then the answer of a fetch is expected
        self._is_anything_delayed = False
        #: When the next group or timer is due (clock.now_s): a sweep makes it ready, unless a fetch does that before.
        self.next_due_s = inf

    # -- the event loop of the consumers

    def add_consumer(self) -> None:
        self.consumers += 1

    def remove_consumer(self) -> None:
        self.consumers -= 1
        self.background.set()

    def fetch_started(self) -> None:
        self.last_fetch_s = clock.now_s()
        self._answer_until_s = self.last_fetch_s + ANSWERED_WITHIN_S

    def fetch_ended(self) -> None:
        self._answer_until_s = 0.0

    def slot_is_free(self) -> None:
        """Wake the loop, or the background thread if no channel fetches."""
        if not self.consumers:
            self.background.set()
        elif not self._is_loop_woken and clock.now_s() >= self._answer_until_s:
            self._is_loop_woken = True
            self._channel.wake()

    def loop_was_woken(self) -> None:
        """Called when the wake-up was read: the next event wakes the loop again."""
        self._is_loop_woken = False

    # -- the background thread

    def retry_is_delayed(self) -> None:
        """A message was delayed, and may become due before the next sweep."""
        self._is_anything_delayed = True
        self.background.set()

    def next_is_due(self, within_s: float | None) -> None:
        """Called after each fetch: the next group or timer is due then; None: there is none."""
        before_s, self.next_due_s = self.next_due_s, inf if within_s is None else clock.now_s() + within_s
        if self.next_due_s < before_s:
            self.background.set()

    def take_delayed(self) -> bool:
        """True if a message was delayed since the last call."""
        was_delayed, self._is_anything_delayed = self._is_anything_delayed, False
        return was_delayed
