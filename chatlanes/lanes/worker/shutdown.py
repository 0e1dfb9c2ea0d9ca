"""Worker shutdown: warm (SIGTERM) and cold (SIGQUIT, or Ctrl-C twice).

Guarantees that exactly the messages whose run ended are settled, and that the others are released, uncounted, as soon
as nothing on this worker can run them. Threads and solo cannot be interrupted: their runs end first. A cold shutdown
that hangs ends the process after a limit; then the leases expire.
"""

from __future__ import annotations

import os
from typing import Any

from celery import bootsteps, signals
from celery.concurrency.base import BasePool
from celery.worker import state
from kombu.log import get_logger

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.leases.registry import stop_background
from chatlanes.lanes.runtime import os_threads

logger = get_logger(__name__)

#: How long a killed greenlet may take to clean up.
CLEANUP_WITHIN_S = 5.0
#: A cold shutdown ends this long after the signal (and the worker_soft_shutdown_timeout), unless runs in threads or
#: solo are still in progress; then, this long after the last of them.
COLD_WITHIN_S, COLD_AFTER_RUNS_S = 10.0, 3.0
CHECK_EVERY_S = 0.2


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


class ColdExit:
    """Ends the process if a cold shutdown hangs, also inside of Celery's signal handler.

    The handler interrupts the main thread anywhere, so it may wait for a lock that this thread holds. The exit is on a
    thread that takes no lock.
    """

    def __init__(self, worker: Any) -> None:
        self._in_flight: InFlight = worker.app.lanes.in_flight
        self._within_s = COLD_WITHIN_S + worker.app.conf.worker_soft_shutdown_timeout
        self._pool = type(worker.pool).__module__.rpartition(".")[2]
        self._is_handled = False  # the signal handler has returned
        signals.worker_shutting_down.connect(self._handled, weak=False)  # sent at the end of the handler
        wait_for_soft_shutdown = worker.wait_for_soft_shutdown

        def begin() -> None:
            os_threads.start_thread(self._exit_when_late)
            wait_for_soft_shutdown()

        worker.wait_for_soft_shutdown = begin  # the handler begins with it

    def _handled(self, how: str, **_: Any) -> None:
        self._is_handled = how == "Cold"

    def _exit_when_late(self) -> None:
        pause = os_threads.Signal()
        pause.wait(self._within_s)
        os_threads.start_thread(self._leave)  # it may need a lock
        if self._waits_for_runs():
            while state.active_requests:
                pause.wait(CHECK_EVERY_S)
            pause.wait(COLD_AFTER_RUNS_S)
        pause.wait(CHECK_EVERY_S)
        os._exit(1)

    def _waits_for_runs(self) -> bool:
        """A handler in solo runs on the main thread: it cannot end while the signal handler hangs."""
        return self._pool == "thread" or (self._pool == "solo" and self._is_handled)

    def _leave(self) -> None:
        self._in_flight.release_unclaimed()
        logger.warning("lanes: the shutdown hangs: the worker exits without waiting for it")
