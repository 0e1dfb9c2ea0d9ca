"""A turn that is asked for while messages of the last one still run on the loop's own thread (`-P solo`).

Promises that what it brings does not wait behind a handler that takes longer than expected: nobody reads the answer
meanwhile, so the lease keeper takes it back, and who reads it then knows. Any thread may call it.
"""

from __future__ import annotations

from tasks.lanes import clock, native


class EarlyTurn:
    """At most one is under way."""

    def __init__(self) -> None:
        self._lock = native.lock()
        self._asked_s: float | None = None
        self._is_taken_back = False

    @property
    def is_under_way(self) -> bool:
        return self._asked_s is not None

    def asked(self, asked_s: float) -> None:
        with self._lock:
            self._asked_s, self._is_taken_back = asked_s, False

    def take_back(self, after_s: float) -> bool:
        """Whether it has been under way for so long: what Redis has handed out with it is to be released."""
        with self._lock:
            if self._asked_s is None or clock.now_s() - self._asked_s < after_s:
                return False
            self._asked_s, self._is_taken_back = None, True
            return True

    def ended(self) -> bool:
        """Its answer is read, or lost. Whether it was taken back."""
        with self._lock:
            was_taken_back = self._is_taken_back
            self._asked_s, self._is_taken_back = None, False
            return was_taken_back
