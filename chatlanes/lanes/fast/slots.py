"""The slots of a pool whose jobs run on threads, on event loops, or both.

Promises that no more jobs run than there are slots, that the others begin in their order, and that none begins after
the end. The end of the process waits for what runs on loops, as the standard library's executors wait for theirs.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Slots(Generic[T]):
    """Of one pool."""

    def __init__(self, limit: int) -> None:
        self.are_closed = False
        self._free = limit
        self._waiting: deque[T] = deque()
        self._on_loops, self._is_waited_for = 0, False
        self._lock = threading.Lock()
        self._loops_are_idle = threading.Condition(self._lock)

    def take(self, job: T) -> bool:
        """Whether it may start. Else whoever leaves a slot gets it."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            self._waiting.append(job)
            return False

    def left(self) -> T | None:
        """What is to start in the slot that has become free."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._free += 1
            return None

    def close(self) -> None:
        """What waits is forgotten."""
        with self._lock:
            self.are_closed = True
            self._waiting.clear()

    # -- those on loops, which no thread stands for

    def begins_on_loop(self) -> None:
        with self._lock:
            self._on_loops += 1
            if not self._is_waited_for:
                self._is_waited_for = True
                atexit.register(self.wait_for_loops)

    def ended_on_loop(self) -> None:
        with self._lock:
            self._on_loops -= 1
            if not self._on_loops:
                self._loops_are_idle.notify_all()

    def wait_for_loops(self) -> None:
        with self._lock:
            while self._on_loops:
                self._loops_are_idle.wait()
