"""Replaces how the parent of a prefork pool reads results: everything that a child has written is read at once.

Guarantees that billiard receives the start and end of each job in order, and that everything a dead child sent is read.
Wakes no thread.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import Any

from billiard.common import pickle_loads
from billiard.pool import ACK, READY
from celery.concurrency import asynpool

#: At shutdown of the pool: how long to wait for the next result of one child before the next child is read.
_SELECT_S = 0.05
_CHUNK = 1 << 16
#: Celery's (failed, result, time) for a task that has ended, and whose child died before it sent the result, or has not
#: sent it yet.
_ENDED = (True, (0, None, 0.0))
#: A child sends the result of a job together with those of quick jobs behind it. One that runs longer is not quick.
_QUICK_S = 0.05


class FastResultHandler(asynpool.ResultHandler):
    """Reads everything that a child has written at once."""

    def __init__(self, *args: Any, pool: Any, **kwargs: Any) -> None:
        self._pool_of = pool
        super().__init__(*args, **kwargs)

    def register_with_event_loop(self, hub: Any) -> None:
        self._hub = hub
        self.handle_event = self._on_readable

    def _on_readable(self, fileno: int) -> None:
        child = self.fileno_to_outq.get(fileno)
        if child is None or self.read(child) == b"":
            self._hub.remove_reader(fileno)

    def _flush_outqueue(self, fileno: int, remove: Any, children: Any, on_state_change: Any) -> None:
        child = children.get(fileno)
        if child is None:  # it has exited, and everything it sent was read
            remove(fileno)
            return
        asynpool._select({fileno}, None, {fileno}, _SELECT_S)
        if self.read(child) == b"":
            remove(fileno)

    def read(self, child: Any) -> bytes | None:
        """Read and handle what the child has written so far. Returns the bytes; None: there were none; empty: the pipe
        is closed.
        """
        try:
            chunk: bytes | None = os.read(child.outq._reader.fileno(), _CHUNK)
        except BlockingIOError:
            chunk = None
        except OSError:  # closed
            return b""
        # Reports are read after the results, so that those made before a result are applied before it is handled.
        self._pool_of.in_flight.reports.read_children()
        for frame in child.frames.cut(chunk or b""):
            self._handle(child, pickle_loads(frame))
        self.accept(child)
        return chunk

    def _handle(self, child: Any, message: Any) -> None:
        what, about = message
        if what == ACK:
            child.runs = about[0]
        elif what == READY:
            self.accept(child)
            if child.runs == about[0]:
                child.runs = None
        self.on_state_change(message)

    def accept(self, child: Any) -> None:
        """Report to billiard the job that the child runs, once the previous job has ended."""
        while child.reports.accepted:
            number, at_s = child.reports.accepted[0]
            is_new = monotonic() < at_s + _QUICK_S
            if child.runs is not None and (is_new or not self._end_if_settled(child)):
                break
            child.reports.accepted.popleft()
            child.runs = number
            self.on_state_change((ACK, (number, None, at_s, child.pid, child.synqW_fd)))

    def _end_if_settled(self, child: Any) -> bool:
        """Report the end of a job whose message is settled: only its result is missing."""
        job = child.given.get(child.runs)
        if job is None or job.tag is None or self._pool_of.in_flight.holds(job.tag):
            return False
        self.on_state_change((READY, (child.runs, None, _ENDED, child.inqW_fd)))
        return True

    def accept_all(self, child: Any) -> None:
        """The child has died. If it started a job whose message is settled, the job has ended and only its result is
        lost.
        """
        while child.reports.accepted or child.runs is not None:
            self._end_if_settled(child)
            child.runs = None
            self.accept(child)
