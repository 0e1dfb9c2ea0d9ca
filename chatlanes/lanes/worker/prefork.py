"""Changes to Celery's prefork pool: its flush when the consumer stops or loses its connection, and dead children.

Guarantees that a flush forgets and releases only jobs of which nothing was written to a child, and that a dead child is
replaced at once, even while the worker starts, where Celery would exit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.concurrency import asynpool

#: A child exits within milliseconds after its pipes close; one of many gigabytes takes seconds.
_CHECK_EVERY_S, _MAX_CHECKS = 0.01, 200


def end_with_parent() -> None:
    """Called before the pool forks. Celery asks the kernel to end a child when its parent dies; a child whose parent
    died before that exits here.
    """
    parent = os.getpid()

    def check(**_: Any) -> None:
        if parent not in (os.getpid(), os.getppid()):  # solo sends the signal in the process of the worker itself
            os._exit(1)

    signals.worker_process_init.connect(check, weak=False)


def keep_written_jobs(pool: Any, forgotten: Callable[[set[str]], None]) -> None:
    """Change a started `celery.concurrency.prefork.TaskPool`; other pools are not changed.

    `forgotten` is called with the task ids of the jobs that no child will run. Celery's flush also forgets jobs that
    are in a child's pipe: the child runs them, waits half a minute for its result to be read (billiard waits 300 times
    0.1 s), and they are not settled.
    """
    children: Any = getattr(pool, "_pool", None)
    if hasattr(children, "outbound_buffer"):
        pool.flush = lambda: forgotten(_flush(children))


def replace_dead_children_at_once(pool: Any) -> None:
    """Change a started prefork pool; other pools are not changed.

    Celery checks a dead child once, often slightly too early, and again after up to 5 s.
    """
    children: Any = getattr(pool, "_pool", None)
    if not hasattr(children, "_event_process_exit"):
        return
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
