"""The threads of `-P threads`, without a future for each task: nobody here asks for its result that way.

Promises what the standard library's executor does, which it is: as many threads as are needed up to the limit, an end
that waits for what runs and forgets what has not begun. What runs on an event loop's thread (loop_jobs.py) takes a slot
and no thread. tests/lanes/test_threads.py says when that changes inside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from celery.concurrency.base import apply_target
from celery.concurrency.thread import ApplyResult, TaskPool

from chatlanes.lanes.fast.slots import Slots
from chatlanes.lanes.worker.loop_jobs import Loop


def use_lean_threads(pool: Any) -> None:
    """Change a `celery.concurrency.thread.TaskPool` that has not started; other pools stay as they are."""
    if type(pool) is not TaskPool:
        return
    threads = pool.executor = LeanThreads(pool.limit)

    def on_apply(
        target: Any,
        args: Any = None,
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        loop: Loop | None = None,
        **_: Any,
    ) -> ApplyResult:
        given = apply_target, target, args or (), kwargs, callback, accept_callback
        return ApplyResult(threads.submit(*given) if loop is None else threads.submit_to(loop, *given))

    # What Celery's apply_async does besides is for pools that have processes.
    pool.on_apply = pool.apply_async = on_apply
    pool.has_loops, pool.together = True, threads.together


class Job:
    """In the place of a work item and of its future, both of which make locks."""

    def __init__(self, threads: LeanThreads, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._threads, self._function, self._arguments = threads, function, arguments

    @property
    def future(self) -> Job:
        return self

    def cancel(self) -> None:
        """Nobody waits for it: what has not begun is given back when the consumer ends."""

    def start(self) -> None:
        self._threads.start(self)

    def run(self, *_: Any) -> None:
        """And what waits for its slot. What it raises ends here, as in a future that nobody looks at: a thread must
        not.
        """
        job: Any = self
        while type(job) is Job:
            job.call()
            job = self._threads.slots.left()
        if job is not None:
            job.start()

    def call(self) -> None:
        with suppress(BaseException):  # Celery has told what there is to tell
            self._function(*self._arguments)

    def result(self, timeout: float | None = None) -> None: ...


class LoopJob(Job):
    """One that runs on the thread of a loop."""

    def __init__(self, loop: Loop, *given: Any) -> None:
        super().__init__(*given)
        self._loop = loop

    def start(self) -> None:
        self._threads.slots.begins_on_loop()
        self._loop.begin_job(self.run)

    def start_soon(self) -> Loop:
        """When the loop, which is returned, is told."""
        self._threads.slots.begins_on_loop()
        self._loop.begin_job(self.run, is_last=False)
        return self._loop

    def run(self, *_: Any) -> None:
        slots = self._threads.slots
        if not slots.are_closed:
            self.call()
        slots.ended_on_loop()
        if (job := slots.left()) is not None:
            job.start()


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
    """Celery submits from one thread only; whoever leaves a slot starts what waits for it, on a thread or a loop."""

    _idle_semaphore: Any
    _work_queue: Any
    _adjust_thread_count: Any
    _shutdown_lock: Any

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._idle_semaphore = Idle()
        self.slots = Slots[Job](limit)
        self._awaited: set[Loop] | None = None

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:  # type: ignore[override]
        return self._submitted(Job(self, function, arguments))

    def submit_to(self, loop: Loop, function: Callable[..., Any], /, *arguments: Any) -> Any:
        return self._submitted(LoopJob(loop, self, function, arguments))

    def start(self, job: Job) -> None:
        """On a thread, now: it has a slot."""
        with self._shutdown_lock:
            self._work_queue.put(job)
            self._adjust_thread_count()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self.slots.close()
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self.slots.wait_for_loops()

    @contextmanager
    def together(self, _between: Callable[[], None]) -> Iterator[None]:
        """Around jobs that are submitted one after the other: a loop that is woken by the first takes turns with
        whoever submits the others, which costs both more than the job.
        """
        awaited = self._awaited = set()
        try:
            yield
        finally:
            self._awaited = None
            for loop in awaited:
                loop.begin_jobs()

    def _submitted(self, job: Job) -> Job:
        if not self.slots.take(job):
            return job
        if self._awaited is not None and isinstance(job, LoopJob):
            self._awaited.add(job.start_soon())
        else:
            job.start()
        return job
