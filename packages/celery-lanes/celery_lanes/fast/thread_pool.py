"""Runs tasks that wait in coroutines on the thread of their event loop (`-P threads`): such a task takes a slot of the
pool, but no thread.

Guarantees that no more tasks run than the pool has slots, that the others start in order, and that none starts after
the pool has stopped. Stopping the pool waits for the tasks on loops as it does for its threads.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from celery.concurrency.base import apply_target
from celery.concurrency.thread import TaskPool

from celery_lanes.worker.task import Loop


def apply(worker: Any) -> None:
    """Change the worker's `celery.concurrency.thread.TaskPool` before it starts."""
    use_loops(worker.pool)


def use_loops(pool: TaskPool) -> None:
    slots, stop_stock = PoolSlots(pool.limit), pool.on_stop

    def on_apply(
        target: Any,
        args: Any = None,
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        loop: Loop | None = None,
        **_: Any,
    ) -> None:
        given = apply_target, target, args or (), kwargs, callback, accept_callback
        job = PooledThreadJob(slots, pool.executor.submit, given) if loop is None else PooledLoopJob(slots, loop, given)
        if slots.take(job):
            job.start()

    def on_stop() -> None:
        slots.close()
        stop_stock()
        slots.wait_for_loops()

    # Celery's apply_async only adds arguments for pools of processes.
    pool.on_apply = pool.apply_async = on_apply
    pool.on_stop, pool.has_loops = on_stop, True


class PooledJob:
    def __init__(self, slots: PoolSlots, given: tuple[Any, ...]) -> None:
        self._slots, self._given = slots, given

    def start(self) -> None:
        """Start the job, which has a slot."""
        raise NotImplementedError

    def call(self) -> None:
        function, *arguments = self._given
        with suppress(BaseException):  # the tracer has reported it; it must not end the thread
            function(*arguments)


class PooledThreadJob(PooledJob):
    def __init__(self, slots: PoolSlots, submit: Callable[..., Any], given: tuple[Any, ...]) -> None:
        super().__init__(slots, given)
        self._submit = submit

    def start(self) -> None:
        with suppress(RuntimeError):  # the executor is shut down: the message is released when the consumer stops
            self._submit(self._run)

    def _run(self) -> None:
        job: PooledJob | None = self
        while isinstance(job, PooledThreadJob):  # the next thread job runs on this thread
            job.call()
            job = self._slots.release_slot()
        if job is not None:
            job.start()


class PooledLoopJob(PooledJob):
    def __init__(self, slots: PoolSlots, loop: Loop, given: tuple[Any, ...]) -> None:
        super().__init__(slots, given)
        self._loop = loop

    def start(self) -> None:
        self._slots.started_on_loop()
        self._loop.begin_job(self._run)

    def _run(self) -> None:
        if not self._slots.are_closed:
            self.call()
        self._slots.ended_on_loop()
        if (job := self._slots.release_slot()) is not None:
            job.start()


class PoolSlots:
    """The slots of one pool, and the jobs that wait for one."""

    def __init__(self, limit: int) -> None:
        self.are_closed = False
        self._free = limit
        self._waiting: deque[PooledJob] = deque()
        self._on_loops, self._is_waited_for = 0, False
        self._lock = threading.Lock()
        self._loops_are_idle = threading.Condition(self._lock)

    def take(self, job: PooledJob) -> bool:
        """True if the job may start; otherwise it is queued for the next free slot."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            self._waiting.append(job)
            return False

    def release_slot(self) -> PooledJob | None:
        """Free a slot. Returns the waiting job that takes it, if any."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._free += 1
            return None

    def close(self) -> None:
        """Drop the waiting jobs."""
        with self._lock:
            self.are_closed = True
            self._waiting.clear()

    def started_on_loop(self) -> None:
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
