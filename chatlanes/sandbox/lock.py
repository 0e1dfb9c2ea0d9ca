"""One server per directory.

Promises that the lock is held for exactly as long as the server lives: it is handed to it as an open file, so it ends
with its process, whatever becomes of the one who started it.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: A killed server's child may still be rewriting the append-only file.
FREE_WITHIN_S = 3.0


class DirectoryTakenError(RuntimeError):
    """Another server writes there."""


@contextmanager
def lock_of(directory: Path) -> Iterator[int]:
    """The lock as an open file, to be passed on. Raises DirectoryTakenError."""
    lock = os.open(directory / "server.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        give_up_at = time.monotonic() + FREE_WITHIN_S
        while not _locked(lock):
            if time.monotonic() > give_up_at:
                pid = os.read(lock, 20).decode()
                raise DirectoryTakenError(f"another Redis server (pid {pid}) is using {directory}")
            time.sleep(0.01)
        yield lock
    finally:
        os.close(lock)


def sign(lock: int, pid: int) -> None:
    """Leave word of who holds it."""
    os.truncate(lock, 0)
    os.write(lock, str(pid).encode())


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
