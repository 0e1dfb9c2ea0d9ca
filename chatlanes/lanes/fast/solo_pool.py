"""The pool of `-P solo`, which runs the messages of a turn when all of them have been received.

Promises that each runs on the loop's thread, in the order in which it was given, and that one which was given by itself
runs at once. After a handler of 5 ms the processor's caches are cold: to receive the next one takes up to three times
as long then as one of several in a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from celery.concurrency import solo
from celery.concurrency.base import apply_target


def use_lean_solo(pool: Any) -> None:
    """Change a `celery.concurrency.solo.TaskPool`; other pools stay as they are."""
    if type(pool) is not solo.TaskPool:
        return
    jobs = Jobs()
    # What Celery's apply_async does besides is for pools that have processes.
    pool.on_apply = pool.apply_async = jobs.apply
    pool.together = jobs.together


class Jobs:
    """Of one pool."""

    def __init__(self) -> None:
        self._given: deque[Callable[[], None]] | None = None

    def apply(self, *given: Any, **how: Any) -> None:
        def run() -> None:
            apply_target(*given, **how)

        if self._given is None:
            run()
        else:
            self._given.append(run)

    @contextmanager
    def together(self, between: Callable[[], None]) -> Iterator[None]:
        """What is given inside runs afterwards, with `between` between one and the next. After an error nothing more
        runs: whoever gave it still holds it.
        """
        given = self._given = deque()
        try:
            yield
        finally:
            self._given = None
        while given:
            given.popleft()()
            if given:
                between()
