"""Replaces how a billiard child receives jobs and reports their start, end and result.

billiard's child reads the length of a job and then the job, and writes two messages per job: its start and its result.
Here several jobs are read with one call, the results of quick jobs are written together, and reports go through memory
that the child shares with its parent, without a system call, unless the job is announced. Guarantees that a line in
this memory is read whole or not at all, in the order of writing: if the child dies, results that it has not written are
lost; the parent reads its reports all the same.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

from billiard.common import pickle_loads
from billiard.pool import ACK, EX_FAILURE, EX_OK, READY, SIG_SOFT_TIMEOUT, soft_timeout_sighandler
from celery.concurrency.asynpool import Worker

from celery_lanes.leases import REFUSED, RELEASED, STARTED, PipeEnd, Report, ReportChannel, line_of, report_of
from celery_lanes.runtime import clock, threads

#: Hundreds of lines: many more than a child can write before its parent, while it sends jobs, reads them.
SIZE = 1 << 16
#: Two counters: total bytes written, total bytes read.
_HEAD = 16
#: The pause of a child while its memory is full, until its parent reads it or ends the child.
_FULL_PAUSE_S = 0.001
#: A report about a job of the pool, by its number, instead of a delivery: the job has started.
_ACCEPTED = "a"

#: The capacity of a pipe.
_CHUNK = 1 << 16
#: billiard's header of a message: its length.
_LENGTH = struct.Struct("!i")
#: How long a result may wait to be written together with others, seconds.
_TOGETHER_S = 0.002
_START_BY, _MARK = struct.Struct("!Bd"), 0

#: A job with this instead of its part number, which only billiard's map uses, is announced: the child sends its start
#: to the parent at once.
ANNOUNCED = "announced"


class Ring:
    """Created by the parent before it forks. One process writes, from any thread; only one thread reads at a time."""

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, _HEAD + SIZE))
        self._counts = memory[:_HEAD].cast("Q")
        self._lines = memory[_HEAD:]
        # Reentrant: a signal handler may raise in a thread that holds it.
        self._writing = threading.RLock()
        self._fence = threads.lock()

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
        self.has_running_job = False  # in a child
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
        if what in (RELEASED, REFUSED):
            self.has_running_job = False  # a time limit would make a failure of it
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


class Frames:
    """Splits the bytes read from a pipe into billiard's messages."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, chunk: bytes) -> list[bytes]:
        data = self._rest + chunk if self._rest else chunk
        at, frames = 0, []
        while len(data) - at >= _LENGTH.size:
            begin = at + _LENGTH.size
            end = begin + _LENGTH.unpack_from(data, at)[0]
            if end > len(data):
                break
            frames.append(data[begin:end])
            at = end
        self._rest = data[at:]
        return frames


def framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def start_by_mark(start_by_s: float) -> bytes:
    """Precedes a job that must not start later than `start_by_s`. No pickle starts with these bytes."""
    return framed(_START_BY.pack(_MARK, start_by_s))


def _start_by_s(frame: bytes) -> float | None:
    if frame[0] != _MARK:
        return None
    start_by_s: float = _START_BY.unpack(frame)[1]
    return start_by_s


class Child(Worker):
    """Created in the parent, and called in the child."""

    def __init__(self, channel: SharedMemoryChannel, *args: Any, **kwargs: Any) -> None:
        self._channel = channel
        super().__init__(*args, **kwargs)
        self.outq: Any

    def after_fork(self) -> None:
        super().after_fork()
        self._channel.set_owner()
        signal.signal(SIG_SOFT_TIMEOUT, self._on_soft_timeout)
        should_stop = self._shutdown.is_set if self._shutdown else None
        jobs = Jobs(self.inq._reader.fileno(), should_stop, self._channel)
        self.outq = jobs.results = Results(self.outq, self._channel, jobs.has_more)
        self.wait_for_job = jobs

    def _on_soft_timeout(self, *signal_and_frame: Any) -> None:
        """If the parent is late, the job may have ended, and billiard's handler would end this process."""
        if self._channel.has_running_job:
            soft_timeout_sighandler(*signal_and_frame)

    def _ensure_messages_consumed(self, completed: int) -> Any:
        self.outq.flush()
        return super()._ensure_messages_consumed(completed=completed)


def _exit_unless_intact(end: PipeEnd) -> None:
    """Exit if a task has closed the pipe. The parent then starts another child, and reads the reports that this one
    left in shared memory.
    """
    if not end.is_intact():
        os._exit(EX_FAILURE)


class Jobs:
    """billiard's `wait_for_job`. Raises SystemExit when no more jobs will arrive."""

    def __init__(self, fileno: int, should_stop: Callable[[], bool] | None, channel: SharedMemoryChannel) -> None:
        self._fileno, self._end = fileno, PipeEnd(fileno)
        self._should_stop = should_stop
        self._channel = channel
        self._frames = Frames()
        self._waiting: deque[bytes] = deque()
        self.results: Results

    def __call__(self) -> Any:
        if self._should_stop and self._should_stop():
            raise SystemExit(EX_OK)
        frame = self._next()
        if start_by_s := _start_by_s(frame):
            frame = self._next()
        self._channel.start_by_s = start_by_s
        job = pickle_loads(frame)
        if job is None:  # the pool is closed
            raise SystemExit(EX_FAILURE)
        what, (number, part, function, args, options) = job
        return what, (number, part, partial(self._run, function), args, options)

    def _run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._channel.has_running_job = True
        try:
            return function(*args, **options)
        finally:
            self._channel.has_running_job = False

    def has_more(self) -> bool:
        """True if jobs are waiting in addition to the next one, which takes one or two frames."""
        return len(self._waiting) > 2

    def _next(self) -> bytes:
        while not self._waiting:
            self.results.flush()
            _exit_unless_intact(self._end)
            try:
                chunk = os.read(self._fileno, _CHUNK)
            except OSError:
                chunk = b""
            if not chunk:  # the parent has closed the pipe or died
                raise SystemExit(EX_FAILURE)
            self._waiting += self._frames.cut(chunk)
        return self._waiting.popleft()


class Results:
    """Wraps billiard's queue of results, and writes those of quick jobs together.

    The end of a lane message is also reported in shared memory, which the parent reads even if this process dies before
    it writes the result (leases/reports.py).
    """

    def __init__(self, queue: Any, channel: SharedMemoryChannel, has_more: Callable[[], bool]) -> None:
        self._queue = queue
        self._channel = channel
        self._has_more = has_more
        self._fileno = queue._writer.fileno()
        self._end = PipeEnd(self._fileno)
        self._unwritten = b""
        self._write_by_s = 0.0

    def put(self, message: Any) -> None:
        what, about = message
        if what == ACK and about[1] != ANNOUNCED and self._channel.accept(about[0], about[2]):
            return
        if what == READY and about[2][0]:
            now_s = monotonic()
            if not self._unwritten:
                self._write_by_s = now_s + _TOGETHER_S
            self._unwritten += framed(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
            if now_s >= self._write_by_s or about[1] == ANNOUNCED or not self._has_more():
                self.flush()
        else:  # an error may contain objects that only billiard can pickle
            self.flush()
            _exit_unless_intact(self._end)
            self._queue.put(message)

    def flush(self) -> None:
        if self._unwritten:
            _exit_unless_intact(self._end)
        while self._unwritten:
            self._unwritten = self._unwritten[os.write(self._fileno, self._unwritten) :]
