"""This process: its pid without a system call, and whether its pipes are still the ones it opened.

Guarantees that `process.pid` is correct after a fork by Python, as all pools of Celery do it. Do not copy it: it
changes at a fork.
"""

from __future__ import annotations

import os

pid = os.getpid()


def _after_fork() -> None:
    global pid
    pid = os.getpid()


os.register_at_fork(after_in_child=_after_fork)


class PipeEnd:
    """One end of a pipe, identified by its file descriptor.

    A task may close files that it does not own. Their descriptors are soon reused, for example for a connection to
    Redis, which a read or write through the old pipe would corrupt. A process whose pipe is not intact must end.
    """

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
