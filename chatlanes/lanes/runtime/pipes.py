"""Detects that a task has closed a pipe of its worker.

A task may close files that it does not own. Their descriptors are soon reused, for example for a connection to Redis,
which a read or write through the old pipe would corrupt. Such a process must end.
"""

from __future__ import annotations

import os


class End:
    """One end of a pipe, identified by its file descriptor."""

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
