"""The threads of `-P threads`, without a future for each task: nobody here asks for its result that way.

Promises what the standard library's executor does, which it is: as many threads as are needed up to the limit, an end
that waits for what runs and forgets what has not begun. tests/lanes/test_threads.py says when that changes inside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from celery.concurrency.thread import TaskPool


def use_lean_threads(pool: Any) -> None:
    """Change a `celery.concurrency.thread.TaskPool` that has not started; other pools stay as they are."""
    if type(pool) is TaskPool:
        pool.executor = LeanThreads(pool.limit)


class Job:
    """In the place of a work item and of its future, both of which make locks."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._function, self._arguments = function, arguments

    @property
    def future(self) -> Job:
        return self

    def cancel(self) -> None:
        """Nobody waits for it: what has not begun is given back when the consumer ends."""

    def run(self, *_: Any) -> None:
        """What it raises ends here, as in a future that nobody looks at: a thread must not."""
        with suppress(BaseException):  # Celery has told what there is to tell
            self._function(*self._arguments)

    def result(self, timeout: float | None = None) -> None: ...


class Idle:
    """In the place of a semaphore: how many threads have nothing to do."""

    def __init__(self) -> None:
        self._threads: deque[None] = deque()

    def release(self) -> None:
        self._threads.append(None)

    def acquire(self, timeout: float = 0) -> bool:
        """Whether there was one. Never waits."""
        try:
            self._threads.pop()
        except IndexError:
            return False
        return True


class LeanThreads(ThreadPoolExecutor):
    """Celery submits from one thread only."""

    _idle_semaphore: Any
    _work_queue: Any
    _adjust_thread_count: Any

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._idle_semaphore = Idle()

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:  # type: ignore[override]
        job = Job(function, arguments)
        self._work_queue.put(job)
        self._adjust_thread_count()
        return job
