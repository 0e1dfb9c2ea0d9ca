"""What a prefork pool does with its jobs when the consumer stops or loses its connection.

Celery's own flush forgets every job whose start it has not yet heard of, also those that are in a child's pipe already:
the child runs them and then waits half a minute for somebody to take the result (billiard waits 300 times 0.1 s), and
nobody settles them. Promises instead that only jobs of which nothing was written are forgotten, and told: whatever a
child may run is heard of, and nothing else keeps a slot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def keep_written_jobs(pool: Any, forgotten: Callable[[set[str]], None]) -> None:
    """Change a started `celery.concurrency.prefork.TaskPool`; other pools stay as they are.

    `forgotten` is told the task ids of the jobs that no child will run.
    """
    children = getattr(pool, "_pool", None)
    if hasattr(children, "outbound_buffer"):
        pool.flush = lambda: forgotten(_flush(children))


def _flush(children: Any) -> set[str]:
    unwritten = tuple(children.outbound_buffer)
    for job in unwritten:
        job.discard()
    children.outbound_buffer.clear()
    children.maintain_pool()
    for job in tuple(children._cache.values()):
        writer = job._writer() if job._writer else None
        if writer in children._active_writers:  # half a job in a pipe would garble the next one
            children._flush_writer(job._write_to, writer)
    return {job.correlation_id for job in unwritten}
