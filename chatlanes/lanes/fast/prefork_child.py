"""Replaces how a billiard child receives jobs and sends results.

billiard's child reads the length of a job and then the job, and writes two messages per job: its start and its result.
Here several jobs are read with one call, the results of quick jobs are written together, and the start of a job is
reported in shared memory (shared_memory.py) unless it is announced. If the child dies, results that it has not written
are lost; the parent reads the reports in shared memory all the same.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from billiard.common import pickle_loads
from billiard.pool import ACK, EX_FAILURE, EX_OK, READY
from celery.concurrency.asynpool import Worker

from chatlanes.lanes.fast.shared_memory import SharedMemoryChannel
from chatlanes.lanes.runtime.pipes import End

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
        should_stop = self._shutdown.is_set if self._shutdown else None
        jobs = Jobs(self.inq._reader.fileno(), should_stop, self._channel)
        self.outq = jobs.results = Results(self.outq, self._channel, jobs.has_more)
        self.wait_for_job = jobs

    def _ensure_messages_consumed(self, completed: int) -> Any:
        self.outq.flush()
        return super()._ensure_messages_consumed(completed=completed)


def _exit_unless_intact(end: End) -> None:
    """Exit if a task has closed the pipe. The parent then starts another child, and reads the reports that this one
    left in shared memory.
    """
    if not end.is_intact():
        os._exit(EX_FAILURE)


class Jobs:
    """billiard's `wait_for_job`. Raises SystemExit when no more jobs will arrive."""

    def __init__(self, fileno: int, should_stop: Callable[[], bool] | None, channel: SharedMemoryChannel) -> None:
        self._fileno, self._end = fileno, End(fileno)
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
        return job

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
    it writes the result (report_channel.py).
    """

    def __init__(self, queue: Any, channel: SharedMemoryChannel, has_more: Callable[[], bool]) -> None:
        self._queue = queue
        self._channel = channel
        self._has_more = has_more
        self._fileno = queue._writer.fileno()
        self._end = End(self._fileno)
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
