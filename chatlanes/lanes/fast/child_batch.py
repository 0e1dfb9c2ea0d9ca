"""What one child is given in one go: as many jobs in one write as it takes whole.

A write of up to PIPE_BUF bytes goes into a pipe in one piece or not at all (pipe(7)): nobody has to watch how far it
has come, and a child that dies leaves no half of a job behind.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

from chatlanes.lanes.fast.prefork_child import started_by

#: Of a job's bytes: what is more is written by Celery, piece by piece.
LONGEST = select.PIPE_BUF - 64
#: Jobs behind the one that runs. A pipe holds as many of the longest.
MOST_AHEAD = 15


class Hand:
    """Of one child, whose pipe is `fileno`; `load` jobs are its own. Hands compare by load."""

    def __init__(self, load: int, fileno: int, child: Any) -> None:
        self.load = load
        self.fileno = fileno
        self.child = child
        self._taken: list[tuple[Any, bytes]] = []

    def __lt__(self, other: Hand) -> bool:
        return self.load < other.load

    def take(self, job: Any, start_by_s: float | None) -> None:
        header, body, _ = job._payload
        mark = b"" if start_by_s is None else started_by(start_by_s)
        self._taken.append((job, b"".join((mark, header, body))))
        self.load += 1

    def letters(self) -> Iterator[tuple[list[Any], bytes]]:
        """The jobs of each write, and what to write."""
        jobs: list[Any] = []
        letter = b""
        for job, piece in self._taken:
            if len(letter) + len(piece) > select.PIPE_BUF:
                yield jobs, letter
                jobs, letter = [], b""
            jobs.append(job)
            letter += piece
        if jobs:
            yield jobs, letter
