"""Worker shutdown: warm (SIGTERM) and cold (SIGQUIT, or Ctrl-C twice).

Guarantees that exactly the messages whose run ended are settled, and that the others are released, uncounted, as soon
as nothing on this worker can run them. Threads and solo cannot be interrupted: their runs end first.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.concurrency.base import BasePool

from chatlanes.lanes.leases.registry import stop_background

#: How long a killed greenlet may take to clean up.
CLEANUP_WITHIN_S = 5.0


class ShutdownStep(bootsteps.StartStopStep):
    """The consumer's step. Celery shuts the consumer down last, after the pool, in both kinds of shutdown."""

    def shutdown(self, consumer: Any) -> None:
        """Settle the messages that are done, and release those that will not run here."""
        in_flight = consumer.app.lanes.in_flight
        in_flight.reports.read()
        # A thread or greenlet may outlive its pool: its message keeps its lease until that expires.
        if in_flight.forks:
            in_flight.release_all()
        else:
            in_flight.release_unclaimed()
        stop_background()


def fix_pool_shutdown(pool: Any) -> None:
    """Change a started pool that cannot end its tasks when Celery's handler of SIGQUIT asks for it."""
    if getattr(pool.terminate_job, "__func__", None) is BasePool.terminate_job:
        # NotImplementedError would be raised wherever the main thread is; with solo, inside a task, which would fail.
        pool.terminate_job = lambda pid, signal=None: None
    elif type(pool).__module__ == "celery.concurrency.gevent":
        _wait_for_greenlets(pool)


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
