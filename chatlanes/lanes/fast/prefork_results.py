"""Replaces how the parent of a prefork pool reads results: all that a child wrote is read at once.

billiard is told of the begin and end of each job in their order, and everything that a dead child sent is read. Nobody
is woken.
"""

from __future__ import annotations

import os
from typing import Any

from billiard.common import pickle_loads
from billiard.pool import ACK, READY
from celery.concurrency import asynpool

#: At the end of the pool: how long to wait for a child's next result before the next child is looked at.
_LOOK_S = 0.05
_CHUNK = 1 << 16
#: The result of a task that ended in a child that died before it sent it: Celery's (failed, result, time).
_ENDED = (True, (0, None, 0.0))


class FastResultHandler(asynpool.ResultHandler):
    """Reads all that a child wrote at once."""

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
        if child is None:  # it has ended and was read to its end
            remove(fileno)
            return
        asynpool._select({fileno}, None, {fileno}, _LOOK_S)
        if self.read(child) == b"":
            remove(fileno)

    def read(self, child: Any) -> bytes | None:
        """The bytes that it has written so far, which are handled already. None: no bytes; empty: the end."""
        try:
            chunk: bytes | None = os.read(child.outq._reader.fileno(), _CHUNK)
        except BlockingIOError:
            chunk = None
        except OSError:  # closed
            return b""
        # After the results: a report that was made before one of them is there now.
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
        """Tell billiard of the job that it runs; only after the end of the one before."""
        while child.reports.accepted and child.runs is None:
            child.runs, at_s = child.reports.accepted.popleft()
            self.on_state_change((ACK, (child.runs, None, at_s, child.pid, child.synqW_fd)))

    def accept_all(self, child: Any) -> None:
        """It has died. A job that it began, and whose message is settled, has ended, though its result is lost."""
        while child.reports.accepted or child.runs is not None:
            job = child.given.get(child.runs)
            if job is not None and job.tag is not None and not self._pool_of.in_flight.holds(job.tag):
                self.on_state_change((READY, (child.runs, None, _ENDED, child.inqW_fd)))
            child.runs = None
            self.accept(child)
