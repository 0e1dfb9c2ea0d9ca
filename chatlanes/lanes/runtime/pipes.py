"""Whether a pipe of this process is still the one that it was.

A task may close files that it does not own. Their numbers are soon used again, perhaps for a connection to Redis, and
whatever reads or writes there garbles it. Such a process cannot go on, and is ended.
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
