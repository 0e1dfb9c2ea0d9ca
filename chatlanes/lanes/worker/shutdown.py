"""Worker shutdown: warm (SIGTERM) and cold (SIGQUIT, or Ctrl-C twice).

Guarantees that nothing is settled that did not run to its end, that what did is settled, and that the rest is released
uncounted as soon as nothing here can run it. Threads and solo cannot be interrupted: their runs end first.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.concurrency.base import BasePool

from chatlanes.lanes.leases.registry import stop_background


class LastWords(bootsteps.StartStopStep):
    """Of the consumer, which Celery shuts down last, after the pool, however it is stopped."""

    def shutdown(self, consumer: Any) -> None:
        """Settle what is done, and release what will not run here."""
        in_flight = consumer.app.lanes.in_flight
        in_flight.reports.read()
        # A thread or greenlet may outlive its pool: its message keeps its lease until that expires.
        if in_flight.forks:
            in_flight.release_all()
        else:
            in_flight.release_unclaimed()
        stop_background()


def let_them_end(pool: Any) -> None:
    """Celery asks every pool to terminate its jobs, from a signal handler, also a pool that cannot.

    The NotImplementedError would be raised wherever the main thread is: with solo inside a task, as its failure.
    """
    if getattr(pool.terminate_job, "__func__", None) is BasePool.terminate_job:
        pool.terminate_job = lambda pid, signal=None: None
