"""Alarms: actions that run after a delay unless they are cancelled.

Guarantees that an alarm which is cancelled in time never runs, and that `off` returns True then. Each action runs in
its own thread, so no action waits for another; under gevent it is a greenlet, which waits while others compute.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from time import monotonic

#: The wait of a condition must be finite.
LONGEST_PAUSE_S = 3600.0


class Alarms:
    """For a process that does not fork. The thread starts with the first alarm."""

    def __init__(self) -> None:
        self._set: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._wakes_at_s = 0.0
        self._thread: threading.Thread | None = None

    def on(self, after_s: float, action: Callable[[], None]) -> int:
        """Run `action` after this many seconds; returns the number for `off`."""
        at_s, number = monotonic() + after_s, next(self._numbers)
        with self._changed:
            self._set[number] = (at_s, action)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
                self._thread.start()
            elif at_s < self._wakes_at_s:
                self._changed.notify()
        return number

    def off(self, number: int) -> bool:
        """Cancels an alarm. Returns False if it was due already."""
        with self._changed:
            return self._set.pop(number, None) is not None

    def _run(self) -> None:
        while True:
            with self._changed:
                for action in self._take_due():
                    threading.Thread(target=action, name="alarm", daemon=True).start()
                self._wakes_at_s = min((at_s for at_s, _ in self._set.values()), default=float("inf"))
                pause_s = self._wakes_at_s - monotonic()
                self._changed.wait(min(max(pause_s, 0.0), LONGEST_PAUSE_S))

    def _take_due(self) -> list[Callable[[], None]]:
        now_s = monotonic()
        due = [number for number, (at_s, _) in self._set.items() if at_s <= now_s]
        return [self._set.pop(number)[1] for number in due]
