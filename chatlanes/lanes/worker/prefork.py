"""The prefork pool's jobs when the consumer stops or loses its connection, and its children when one dies.

Celery's own flush forgets every job that has not reported its start, also those that a child's pipe holds already: the
child runs them, waits half a minute for its result to be read (billiard waits 300 times 0.1 s), and they are not
settled. Guarantees instead that only jobs of which nothing was written are forgotten, and released.
When a child dies, Celery checks once, often a moment too early, and again after up to 5 s. Guarantees a new child at
once, also if one dies while its worker starts, where Celery would end the worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.concurrency import asynpool

#: A child is gone within milliseconds after its pipes, one of many gigabytes within seconds.
_LOOK_AGAIN_AFTER_S, _LOOKS = 0.01, 200


def end_with_parent() -> None:
    """Called before the pool forks. Celery asks the kernel to end a child when its parent dies; a child whose parent
    died before that ends here.
    """
    parent = os.getpid()

    def check(**_: Any) -> None:
        if os.getppid() != parent:
            os._exit(1)

    signals.worker_process_init.connect(check, weak=False)


def keep_written_jobs(pool: Any, forgotten: Callable[[set[str]], None]) -> None:
    """Change a started `celery.concurrency.prefork.TaskPool`; other pools stay as they are.

    `forgotten` is called with the task ids of the jobs that no child will run.
    """
    children: Any = getattr(pool, "_pool", None)
    if hasattr(children, "outbound_buffer"):
        pool.flush = lambda: forgotten(_flush(children))


def replace_the_dead_at_once(pool: Any) -> None:
    """Change a started prefork pool; other pools stay as they are."""
    children: Any = getattr(pool, "_pool", None)
    if not hasattr(children, "_event_process_exit"):
        return
    stock = children._event_process_exit

    def look_again(hub: Any, child: Any, times: int) -> None:
        # A process that ends closes its pipes, which is what the hub hears of, before it can be waited for.
        children.maintain_pool()
        if child in children._pool and times:
            hub.call_later(_LOOK_AGAIN_AFTER_S, look_again, hub, child, times - 1)

    def exited(hub: Any, child: Any) -> None:
        stock(hub, child)
        look_again(hub, child, _LOOKS)

    def did_start_ok() -> bool:
        # Celery ends the worker when a child has died before its loop begins.
        children.maintain_pool()
        return True

    children._event_process_exit = exited
    pool.did_start_ok = did_start_ok


def _flush(children: Any) -> set[str]:
    unwritten: list[Any] = []
    for jobs in (
        children.outbound_buffer,
        getattr(children, "waiting", None),
    ):  # the second one is ours (prefork_pool.py)
        unwritten += jobs or ()
        if jobs:
            jobs.clear()
    for job in unwritten:
        job.discard()
    children.maintain_pool()
    for job in tuple(children._cache.values()):
        writer = asynpool._get_job_writer(job)
        if writer in children._active_writers:  # half a job in a pipe would garble the next one
            children._flush_writer(job._write_to, writer)
    return {job.correlation_id for job in unwritten}
