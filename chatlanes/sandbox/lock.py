"""One server per directory.

The server inherits the lock as an open file, so the lock lasts exactly as long as the server's process, even when the
process that started it is gone.
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
    """Another server uses the directory."""


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
    """Write the pid of the holder into the lock file."""
    os.truncate(lock, 0)
    os.write(lock, str(pid).encode())


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
