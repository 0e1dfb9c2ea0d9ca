"""Detects that a task has closed a pipe of its worker.

A task may close files that it does not own. Their numbers are soon reused, perhaps for a connection to Redis, and a
read or write through the old pipe garbles it. Such a process cannot go on, and ends.
"""

from __future__ import annotations

import os


class End:
    """One end of a pipe, by its number."""

    def __init__(self, fileno: int) -> None:
        self._fileno = fileno
        self._is = self._seen()

    def is_intact(self) -> bool:
        try:
            return self._seen() == self._is
        except OSError:
            return False

    def _seen(self) -> tuple[int, int]:
        found = os.fstat(self._fileno)
        return found.st_dev, found.st_ino
