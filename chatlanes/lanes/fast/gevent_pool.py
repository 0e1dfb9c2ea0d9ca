"""Replaces gevent's Pool in Celery's pool (`-P gevent`): a greenlet for each task, without links.

As in Celery's pool, no more greenlets run than there are slots, the caller waits for a free one, and a greenlet that is
killed has not failed. Each task has a greenlet of its own, so that nothing an earlier task left behind (a timeout,
locals) can reach a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.concurrency.base import apply_target
from celery.concurrency.gevent import apply_timeout
from gevent import Greenlet, Timeout, joinall  # type: ignore[import-untyped]
from gevent.lock import Semaphore  # type: ignore[import-untyped]
from greenlet import GreenletExit  # type: ignore[import-untyped]

#: The tracer's report of a task that succeeded; LaneTask has given the message back.
_ENDED = (False, None, None)


class Slots:
    """Instead of gevent's Pool: `size` and `_semaphore` are what Celery's grow and shrink change."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._semaphore = Semaphore(size)
        #: Celery's pid, which is the id of the greenlet -> the greenlet
        self.running: dict[int, Job] = {}

    def start(self, job: Job) -> Job:
        """Waits while all slots are taken."""
        self._semaphore.acquire()
        self.running[id(job)] = job
        job.start()
        return job

    def left(self, job: Job) -> None:
        del self.running[id(job)]
        self._semaphore.release()

    def join(self, timeout: float | None = None) -> None:
        with Timeout(timeout, exception=False):
            while self.running:
                joinall(list(self.running.values()))


class Job(Greenlet):
    """Reports its end to its slots only: links cost more than everything else."""

    spawning_stack_limit = 0  # all are spawned by the pool

    def __init__(self, slots: Slots, run: Callable[..., Any], target: Any, *given: Any, **how: Any) -> None:
        Greenlet.__init__(self)
        self._slots, self._call, self._target, self._given, self._how = slots, run, target, given, how

    def _run(self) -> None:
        try:
            self._call(self._killable, *self._given, **self._how)
        finally:
            self._slots.left(self)

    def _killable(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._target(*args, **kwargs)
        except GreenletExit:
            return _ENDED

    def terminate(self, signal: Any) -> None:
        """Celery calls it after `terminate_job`, which has killed the greenlet."""


def apply(worker: Any) -> None:
    """Change the worker's `celery.concurrency.gevent.TaskPool`, which has not started."""
    use_slots(worker.pool)


def use_slots(pool: Any) -> None:
    def on_start() -> None:
        pool._pool = Slots(pool.limit)
        pool._pool_map = pool._pool.running

    def on_apply(
        target: Any,
        args: Any = None,
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        timeout: float | None = None,
        timeout_callback: Any = None,
        **_: Any,
    ) -> Job:
        slots, given = pool._pool, (target, args or (), kwargs, callback, accept_callback)
        timeout_s = pool.timeout if timeout is None else timeout
        if timeout_s:
            job = Job(slots, apply_timeout, *given, pool.getpid, timeout=timeout_s, timeout_callback=timeout_callback)
        else:
            job = Job(slots, apply_target, *given, getpid=pool.getpid)
        return slots.start(job)

    # Celery's apply_async, which only adds what pools of processes need.
    pool.on_apply = pool.apply_async = on_apply
    pool.on_start = on_start
