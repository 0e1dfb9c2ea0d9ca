"""Changes to Celery's pools: prefork's flush when the consumer stops or loses its connection, its dead children, and
the end of tasks in a cold shutdown.

Guarantees that a flush forgets and releases only jobs of which nothing was written to a child, that a dead child is
replaced at once, even while the worker starts, where Celery would exit, that a job which a dead child has begun is not
given to another one, and that a killed greenlet can clean up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.concurrency import asynpool
from celery.concurrency.base import BasePool

#: A child exits within milliseconds after its pipes close; one of many gigabytes takes seconds.
_CHECK_EVERY_S, _MAX_CHECKS = 0.01, 200
#: How long a killed greenlet may take to clean up.
CLEANUP_WITHIN_S = 5.0


def end_with_parent() -> None:
    """Called before the pool forks. Celery asks the kernel to end a child when its parent dies; a child whose parent
    died before that exits here.
    """
    parent = os.getpid()

    def check(**_: Any) -> None:
        if parent not in (os.getpid(), os.getppid()):  # solo sends the signal in the process of the worker itself
            os._exit(1)

    signals.worker_process_init.connect(check, weak=False)


def adapt_pool(pool: Any, forgotten: Callable[[set[str]], None]) -> None:
    """Change a started pool of Celery's. `forgotten` is called with the task ids of the jobs that it will not run."""
    children: Any = getattr(pool, "_pool", None)
    if hasattr(children, "outbound_buffer"):
        _keep_written_jobs(pool, children, forgotten)
        _replace_dead_children_at_once(pool, children)
        _read_dead_children_first(children)
    if getattr(pool.terminate_job, "__func__", None) is BasePool.terminate_job:
        # NotImplementedError would be raised wherever the main thread is; with solo, inside a task, which would fail.
        pool.terminate_job = lambda pid, signal=None: None
    elif type(pool).__module__ == "celery.concurrency.gevent":
        _wait_for_greenlets(pool)


def _keep_written_jobs(pool: Any, children: Any, forgotten: Callable[[set[str]], None]) -> None:
    """Celery's flush also forgets jobs that are in a child's pipe: the child runs them, waits half a minute for its
    result to be read (billiard waits 300 times 0.1 s), and they are not settled.
    """
    pool.flush = lambda: forgotten(_flush(children))


def _replace_dead_children_at_once(pool: Any, children: Any) -> None:
    """Celery checks a dead child once, often slightly too early, and again after up to 5 s."""
    stock = children._event_process_exit

    def check(hub: Any, child: Any, times: int) -> None:
        # The hub notices the closed pipes of a process before the process can be waited for.
        children.maintain_pool()
        if child in children._pool and times:
            hub.call_later(_CHECK_EVERY_S, check, hub, child, times - 1)

    def exited(hub: Any, child: Any) -> None:
        stock(hub, child)
        check(hub, child, _MAX_CHECKS)

    def did_start_ok() -> bool:
        # Celery exits if a child has died before the worker's loop starts.
        children.maintain_pool()
        return True

    children._event_process_exit = exited
    pool.did_start_ok = did_start_ok


def _read_dead_children_first(children: Any) -> None:
    """A child may die while billiard cleans up another one, after it has looked which ones have died. Celery then gives
    its job to another child, without reading that it began: a second run with the same fence, whose journal would make
    an uncertain call again. The next clean-up, which follows at once, reads what the child has sent and then decides.

    A job that was put back forgets its dead child. Otherwise the next clean-up would put it back a second time.
    """
    stock = children.on_job_process_down

    def on_job_process_down(job: Any, pid: int) -> None:
        if (job._write_to or job._scheduled_for) not in children._pool:
            stock(job, pid)
            job._write_to = job._scheduled_for = None

    children.on_job_process_down = on_job_process_down


def _flush(children: Any) -> set[str]:
    unwritten: list[Any] = []
    for jobs in (children.outbound_buffer, getattr(children, "waiting", None)):  # `waiting`: prefork_pool.py
        unwritten += jobs or ()
        if jobs:
            jobs.clear()
    for job in unwritten:
        job.discard()
    children.maintain_pool()
    for job in tuple(children._cache.values()):
        writer = asynpool._get_job_writer(job)
        if writer in children._active_writers:  # half a job in a pipe would corrupt the next one
            children._flush_writer(job._write_to, writer)
    return {job.correlation_id for job in unwritten}


def _wait_for_greenlets(pool: Any) -> None:
    from gevent import get_hub, getcurrent  # type: ignore[import-untyped]

    def on_stop() -> None:
        # A signal handler runs on gevent's hub, which cannot wait. Celery kills the greenlets and then calls
        # `on_terminate`, which waits for them.
        if pool._pool is not None and getcurrent() is not get_hub():
            pool._pool.join()

    def on_terminate() -> None:
        pool._pool.join(timeout=CLEANUP_WITHIN_S)

    pool.on_stop, pool.on_terminate = on_stop, on_terminate
