"""Worker shutdown: warm (SIGTERM) and cold (SIGQUIT, or Ctrl-C twice).

Guarantees that nothing is settled that did not run to its end, that what did is settled, and that the rest is released
uncounted as soon as nothing here can run it. Threads and solo cannot be interrupted: their runs end first.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.concurrency.base import BasePool

from chatlanes.lanes.leases.registry import stop_background

#: How long a greenlet that was killed may take to tidy up.
CUT_SHORT_WITHIN_S = 5.0


class ShutdownStep(bootsteps.StartStopStep):
    """Of the consumer, which Celery shuts down last, after the pool, however it is stopped."""

    def shutdown(self, consumer: Any) -> None:
        """Settle what is done, and release what will not run here."""
        in_flight = consumer.app.lanes.in_flight
        in_flight.reports.read()
        # A thread or greenlet may outlive its pool: what it runs keeps its lease until that runs out.
        if in_flight.forks:
            in_flight.release_all()
        else:
            in_flight.release_unclaimed()
        stop_background()


def let_them_end(pool: Any) -> None:
    """Change a started pool that cannot end its tasks when Celery asks for it, from the handler of SIGQUIT."""
    if getattr(pool.terminate_job, "__func__", None) is BasePool.terminate_job:
        # Its NotImplementedError would be raised wherever the main thread is: with solo inside a task, as its failure.
        pool.terminate_job = lambda pid, signal=None: None
    elif type(pool).__module__ == "celery.concurrency.gevent":
        _wait_for_greenlets(pool)


def _wait_for_greenlets(pool: Any) -> None:
    from gevent import get_hub, getcurrent  # type: ignore[import-untyped]

    def on_stop() -> None:
        # The signal's handler runs on gevent's loop, which cannot wait. `on_terminate` follows when the greenlets have
        # been killed.
        if pool._pool is not None and getcurrent() is not get_hub():
            pool._pool.join()

    def on_terminate() -> None:
        pool._pool.join(timeout=CUT_SHORT_WITHIN_S)

    pool.on_stop, pool.on_terminate = on_stop, on_terminate
