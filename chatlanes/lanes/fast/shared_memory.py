"""Lines that a forked child leaves in memory which its parent reads: no system call, and they outlive the child.

Promises that a line is read whole or not at all, in the order in which they were written, also when the writer was
killed. Does not wake the reader, and takes no line for which there is no room.
"""

from __future__ import annotations

import mmap
import threading

from chatlanes.lanes.runtime import os_threads

#: Hundreds of lines: many more than a child can have before its parent reads, while it has work for it.
SIZE = 1 << 16
#: Two numbers: bytes ever written, bytes ever read.
_HEAD = 16


class Ring:
    """Made by the parent before it forks. One process writes, from any of its threads; one thread at a time reads."""

    def __init__(self) -> None:
        memory = memoryview(mmap.mmap(-1, _HEAD + SIZE))
        self._counts = memory[:_HEAD].cast("Q")
        self._lines = memory[_HEAD:]
        # Taken again by the same thread when a signal's handler raised before it was given back.
        self._writing = threading.RLock()
        self._fence = os_threads.lock()

    def write(self, line: bytes) -> bool:
        """False: there is no room for it."""
        with self._writing:
            written, length = self._counts[0], len(line)
            if length > SIZE - (written - self._counts[1]):
                return False
            at = written % SIZE
            until_end = min(length, SIZE - at)
            self._lines[at : at + until_end] = line[:until_end]
            self._lines[: length - until_end] = line[until_end:]
            # Killed before this, nobody hears of the line. No processor moves a write across a lock.
            with self._fence:
                pass
            self._counts[0] = written + length
        return True

    def has_lines(self) -> bool:
        return self._counts[0] != self._counts[1]

    def read(self) -> bytes:
        """All that was written since the last time."""
        written, seen = self._counts[0], self._counts[1]
        with self._fence:
            pass
        at, length = seen % SIZE, written - seen
        lines = bytes(self._lines[at : at + length])
        lines += bytes(self._lines[: length - len(lines)])
        self._counts[1] = written
        return lines
