"""What a prefork child does between its jobs: takes the next one, and says how the last one ended.

billiard's own child reads the length of a job and then the job, and writes two messages for each: that it begins, and
its result. Promises the same with one system call for each: several jobs are read at once, and that one begins is said
in memory that the parent reads (handoff.py), unless somebody must hear of it at once.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from billiard.common import pickle_loads
from billiard.pool import ACK, EX_FAILURE, EX_OK, READY
from celery.concurrency.asynpool import Worker

from tasks.lanes.handoff import Handoff

#: As much as a pipe holds.
_CHUNK = 1 << 16
#: billiard's: the length of what follows.
_LENGTH = struct.Struct("!i")

#: In place of a job's part number, which only billiard's map has: say at once that it begins.
ALOUD = "aloud"


class Frames:
    """Cuts what comes out of a pipe into billiard's messages."""

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


class Child(Worker):
    """In the parent its description; called in the child."""

    def __init__(self, handoff: Handoff, *args: Any, **kwargs: Any) -> None:
        self._handoff = handoff
        super().__init__(*args, **kwargs)
        self.outq: Any

    def after_fork(self) -> None:
        super().after_fork()
        self.wait_for_job = Jobs(self.inq._reader.fileno(), self._shutdown.is_set if self._shutdown else None)
        self.outq = Results(self.outq, self._handoff)


class Jobs:
    """billiard's `wait_for_job`. Raises SystemExit when there will be no more."""

    def __init__(self, fileno: int, should_stop: Callable[[], bool] | None) -> None:
        self._fileno = fileno
        self._should_stop = should_stop
        self._frames = Frames()
        self._waiting: deque[bytes] = deque()

    def __call__(self) -> Any:
        if self._should_stop and self._should_stop():
            raise SystemExit(EX_OK)
        while not self._waiting:
            try:
                chunk = os.read(self._fileno, _CHUNK)
            except OSError:
                chunk = b""
            if not chunk:  # the parent is gone
                raise SystemExit(EX_FAILURE)
            self._waiting += self._frames.cut(chunk)
        job = pickle_loads(self._waiting.popleft())
        if job is None:  # the pool is closed
            raise SystemExit(EX_FAILURE)
        return job


class Results:
    """In front of billiard's queue of results."""

    def __init__(self, queue: Any, handoff: Handoff) -> None:
        self._queue = queue
        self._handoff = handoff
        self._fileno = queue._writer.fileno()

    def put(self, message: Any) -> None:
        what, about = message
        if what == ACK and about[1] != ALOUD and self._handoff.accept(about[0], about[2]):
            return
        if what == READY and about[2][0]:
            frame = framed(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
            while frame:
                frame = frame[os.write(self._fileno, frame) :]
        else:  # an error may hold what only billiard can pickle
            self._queue.put(message)
