"""The greenlets of `-P gevent`: one for each task, as Celery has it, without what makes starting one expensive.

Promises what Celery's pool does: no more at a time than the pool has slots, who comes then waits; one that is told to
end does, and is not taken for a failure; the pool's end waits for all. Each task has a greenlet of its own, so that
what an earlier one left behind (a timeout, locals) cannot reach a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.concurrency.base import apply_target
from celery.concurrency.gevent import apply_timeout
from gevent import Greenlet, Timeout, get_hub, getcurrent, joinall  # type: ignore[import-untyped]
from gevent.lock import Semaphore  # type: ignore[import-untyped]
from greenlet import GreenletExit  # type: ignore[import-untyped]

#: What the tracer gives for a task that succeeded; the message was given back (LaneTask).
_ENDED = (False, None, None)

#: How long a greenlet that was told to end may take to tidy up.
CUT_SHORT_WITHIN_S = 5.0


class Slots:
    """In the place of gevent's Pool: `size` and `_semaphore` are what Celery's grow and shrink change."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._semaphore = Semaphore(size)
        #: pid as Celery has it, which is the id of the greenlet -> itself
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

    def join(self, within_s: float | None = None) -> None:
        with Timeout(within_s, exception=False):
            while self.running:
                joinall(list(self.running.values()))


class Job(Greenlet):
    """Tells nobody of its end but its slots: links cost more than the rest."""

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
        """Celery asks this of every result; `terminate_job` has done it."""


def use_lean_greenlets(pool: Any) -> None:
    """Change a `celery.concurrency.gevent.TaskPool` that has not started."""

    def on_start() -> None:
        pool._pool = Slots(pool.limit)
        pool._pool_map = pool._pool.running

    def on_stop() -> None:
        # Called by a cold shutdown from its signal's handler, on gevent's loop, which cannot wait. `on_terminate` comes
        # when that has told the greenlets to end.
        if pool._pool is not None and getcurrent() is not get_hub():
            pool._pool.join()

    def on_terminate() -> None:
        pool._pool.join(CUT_SHORT_WITHIN_S)

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

    # What Celery's apply_async does besides is for pools that have processes.
    pool.on_apply = pool.apply_async = on_apply
    pool.on_start, pool.on_stop, pool.on_terminate = on_start, on_stop, on_terminate
