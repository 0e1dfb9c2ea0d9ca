"""Replaces gevent's Pool in Celery's pool (`-P gevent`): one greenlet per task, without links.

Guarantees, like Celery's pool, that no more greenlets run than there are slots, that the caller waits for a free slot,
and that a killed greenlet does not count as failed. Each task has its own greenlet, so that nothing an earlier task
left behind (a timeout, locals) affects a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.concurrency.base import apply_target
from celery.concurrency.gevent import apply_timeout
from gevent import Greenlet, Timeout, joinall  # type: ignore[import-untyped]
from gevent.lock import Semaphore  # type: ignore[import-untyped]
from greenlet import GreenletExit  # type: ignore[import-untyped]

#: The tracer's result of a successful task. LaneTask has already released the message of the killed greenlet.
_ENDED = (False, None, None)


class GreenletSlots:
    """Replaces gevent's Pool. Celery's grow and shrink change `size` and `_semaphore`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._semaphore = Semaphore(size)
        #: By the pid that Celery knows, which is the id() of the greenlet.
        self.running: dict[int, GreenletJob] = {}

    def start(self, job: GreenletJob) -> GreenletJob:
        """Start a job. Waits while all slots are taken."""
        self._semaphore.acquire()
        self.running[id(job)] = job
        job.start()
        return job

    def release_slot(self, job: GreenletJob) -> None:
        del self.running[id(job)]
        self._semaphore.release()

    def join(self, timeout: float | None = None) -> None:
        with Timeout(timeout, exception=False):
            while self.running:
                joinall(list(self.running.values()))


class GreenletJob(Greenlet):
    """Reports its end only to its slots: links would cost more than everything else."""

    spawning_stack_limit = 0  # recording the spawning stack is useless: the pool spawns all jobs

    def __init__(self, slots: GreenletSlots, run: Callable[..., Any], target: Any, *given: Any, **how: Any) -> None:
        Greenlet.__init__(self)
        self._slots, self._call, self._target, self._given, self._how = slots, run, target, given, how

    def _run(self) -> None:
        try:
            self._call(self._killable, *self._given, **self._how)
        finally:
            self._slots.release_slot(self)

    def _killable(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._target(*args, **kwargs)
        except GreenletExit:
            return _ENDED

    def terminate(self, signal: Any) -> None:
        """Called by Celery after `terminate_job`, which has already killed the greenlet."""


def apply(worker: Any) -> None:
    """Change the worker's `celery.concurrency.gevent.TaskPool` before it starts."""
    pool = worker.pool

    def on_start() -> None:
        pool._pool = GreenletSlots(pool.limit)
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
    ) -> GreenletJob:
        slots, given = pool._pool, (target, args or (), kwargs, callback, accept_callback)
        timeout_s = pool.timeout if timeout is None else timeout
        if timeout_s:
            job = GreenletJob(
                slots, apply_timeout, *given, pool.getpid, timeout=timeout_s, timeout_callback=timeout_callback
            )
        else:
            job = GreenletJob(slots, apply_target, *given, getpid=pool.getpid)
        return slots.start(job)

    # Celery's apply_async only adds arguments for pools of processes.
    pool.on_apply = pool.apply_async = on_apply
    pool.on_start = on_start
