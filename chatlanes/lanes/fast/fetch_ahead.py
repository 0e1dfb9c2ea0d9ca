"""A turn that is asked for while messages of the last one still run on the loop's own thread (`-P solo`).

Promises that what it brings does not wait behind a handler that takes longer than expected: the lease keeper reads the
answer then and gives it back. The loop and the keeper never read at the same time.
"""

from __future__ import annotations

from collections.abc import Callable

from chatlanes.lanes.runtime import clock, os_threads


class EarlyTurn:
    """At most one is under way."""

    def __init__(self) -> None:
        self._lock = os_threads.lock()
        self._asked_s: float | None = None
        self._give_back: Callable[[], bool] = lambda: True

    @property
    def is_under_way(self) -> bool:
        """And its answer is nobody's but the keeper's to read."""
        return self._asked_s is not None

    def asked(self, asked_s: float, give_back: Callable[[], bool]) -> None:
        """`give_back` reads the answer and gives back what it brings. Whether it was here."""
        self._asked_s, self._give_back = asked_s, give_back

    def take_back(self, after_s: float) -> None:
        """By the lease keeper: when it has been under way for so long. Raises what reading raises."""
        if not self._lock.acquire(blocking=False):  # the loop is back
            return
        try:
            if self._asked_s is None or clock.now_s() - self._asked_s < after_s:
                return
            is_over = True
            try:
                is_over = self._give_back()
            finally:
                if is_over:
                    self._asked_s = None
        finally:
            self._lock.release()

    def over(self) -> None:
        """By the loop, which goes round again, and reads itself from now on."""
        if self._asked_s is not None:
            with self._lock:
                self._asked_s = None
