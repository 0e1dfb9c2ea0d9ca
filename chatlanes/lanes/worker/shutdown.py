"""What a worker does at its end, also when it is told to leave at once (SIGQUIT, or Ctrl-C twice).

Promises that nothing is settled that did not run to its end, that Redis hears of what has, and that the rest goes back
uncounted as soon as nobody here can run it. Threads and solo cannot be interrupted: what they run ends first.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps
from celery.concurrency.base import BasePool

from chatlanes.lanes.leases.registry import stop_keepers


class LastWords(bootsteps.StartStopStep):
    """Of the consumer, which Celery shuts down last, after the pool, however it is stopped."""

    def shutdown(self, consumer: Any) -> None:
        """Settle what is done, and give back what nobody here will run."""
        settler = consumer.app.lanes.settler
        settler.read_handoff()
        # A thread or greenlet may outlive its pool: what it runs keeps its lease until that runs out.
        if settler.forks:
            settler.give_back_all()
        else:
            settler.give_back_unclaimed()
        stop_keepers()


def let_them_end(pool: Any) -> None:
    """For a pool that cannot end what it runs: Celery asks it to all the same, from the handler of the signal.

    Its NotImplementedError would come up wherever the main thread is: with solo inside a task, as its failure.
    """
    if getattr(pool.terminate_job, "__func__", None) is BasePool.terminate_job:
        pool.terminate_job = lambda pid, signal=None: None
