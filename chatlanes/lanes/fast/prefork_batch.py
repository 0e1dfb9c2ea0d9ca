"""The jobs that one child is sent in one iteration of the event loop, in as few writes as possible.

A write of up to PIPE_BUF bytes goes into a pipe in one piece or not at all (pipe(7)), so no partial write has to be
resumed, and a child that dies leaves no part of a job behind.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

from chatlanes.lanes.fast.prefork_child import start_by_mark

#: Bytes of a job that fits into one write. Celery writes longer ones, piece by piece.
LONGEST = select.PIPE_BUF - 64
#: Jobs behind the one that runs. A pipe holds as many of the longest.
MOST_AHEAD = 15


class ChildBatch:
    """For the child whose pipe is `fileno`, which has `load` jobs. Batches compare by load."""

    def __init__(self, load: int, fileno: int, child: Any) -> None:
        self.load = load
        self.fileno = fileno
        self.child = child
        self._added: list[tuple[Any, bytes]] = []

    def __lt__(self, other: ChildBatch) -> bool:
        return self.load < other.load

    def add(self, job: Any, start_by_s: float | None) -> None:
        header, body, _ = job._payload
        mark = b"" if start_by_s is None else start_by_mark(start_by_s)
        self._added.append((job, b"".join((mark, header, body))))
        self.load += 1

    def writes(self) -> Iterator[tuple[list[Any], bytes]]:
        """The jobs and the bytes of each write."""
        jobs: list[Any] = []
        data = b""
        for job, piece in self._added:
            if len(data) + len(piece) > select.PIPE_BUF:
                yield jobs, data
                jobs, data = [], b""
            jobs.append(job)
            data += piece
        if jobs:
            yield jobs, data
