"""Worker shutdown: warm (SIGTERM), cold (SIGQUIT, or Ctrl-C twice) and without Redis; and what it means for a task.

Guarantees that exactly the messages whose run ended are settled, and that the others are released, uncounted, as soon
as nothing on this worker can run them. Threads and solo cannot be interrupted: their runs end first. A cold shutdown
that hangs ends the process after a limit; then the leases expire.
"""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from billiard.common import terminate_handler_fired
from celery import bootsteps, signals
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import state
from kombu.log import get_logger
from redis import Redis
from redis.exceptions import RedisError, ResponseError

from celery_lanes.leases import InFlight, stop_background
from celery_lanes.protocol import PipelinedConnection, UnawaitedCommand, connect_like, keys, script
from celery_lanes.runtime import clock, threads

logger = get_logger(__name__)

#: A cold shutdown ends this long after the signal (and the worker_soft_shutdown_timeout), unless runs in threads or
#: solo are still in progress; then, this long after the last of them.
COLD_WITHIN_S, COLD_AFTER_RUNS_S = 10.0, 3.0
CHECK_EVERY_S = 0.2
#: The worker exits when Redis has not answered for NO_ANSWER_S and no handler has run for IDLE_S. Together with the
#: time that the end of a handler may take (journal.py) this is less than 10 s.
NO_ANSWER_S, IDLE_S = 6.0, 3.0
#: The timeout of one command.
ANSWER_WITHIN_S = 1.0
#: Raised inside a task when the worker is asked to exit.
_WORKER_EXITS = (KeyboardInterrupt, WorkerShutdown, WorkerTerminate)

_shared: mmap.mmap | None = None


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


def force_exits(worker: Any) -> None:
    """Called when the pool has started: the worker ends even if its shutdown hangs, or Redis does not answer."""
    in_flight: InFlight = worker.app.lanes.in_flight
    ColdExit(worker, in_flight)
    ForcedExit(in_flight, partial(connect_like, worker.app.connection_for_write(), ANSWER_WITHIN_S)).start()


class ColdExit:
    """Ends the process if a cold shutdown hangs, also inside of Celery's signal handler.

    The handler interrupts the main thread anywhere, so it may wait for a lock that this thread holds. The exit is on a
    thread that takes no lock.
    """

    def __init__(self, worker: Any, in_flight: InFlight) -> None:
        self._in_flight = in_flight
        self._within_s = COLD_WITHIN_S + worker.app.conf.worker_soft_shutdown_timeout
        self._pool = type(worker.pool).__module__.rpartition(".")[2]
        self._is_handled = False  # the signal handler has returned
        signals.worker_shutting_down.connect(self._handled, weak=False)  # sent at the end of the handler
        wait_for_soft_shutdown = worker.wait_for_soft_shutdown

        def begin() -> None:
            threads.start_thread(self._exit_when_late)
            wait_for_soft_shutdown()

        worker.wait_for_soft_shutdown = begin  # the handler begins with it

    def _handled(self, how: str, **_: Any) -> None:
        self._is_handled = how == "Cold"

    def _exit_when_late(self) -> None:
        pause = threads.Signal()
        pause.wait(self._within_s)
        threads.start_thread(self._leave)  # it may need a lock
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


class ForcedExit:
    """Forced exit of a worker that is stopping while Redis does not answer; kombu would wait for it without a limit.

    Guarantees that the worker exits within 10 s of the stop or of the end of the last handler, whichever is later. Does
    nothing while Redis answers. Does not guarantee that pending acks arrive: they are sent on a connection that was
    opened at the start, and their answers are not awaited. A frozen server reads them later; otherwise the leases
    expire. `connect` makes a client with a timeout of ANSWER_WITHIN_S.
    """

    def __init__(self, in_flight: InFlight, connect: Callable[[], Redis]) -> None:
        self._in_flight = in_flight
        self._connect = connect
        self._no_answer_since_s: float | None = None
        self._idle_since_s: float | None = None
        self._is_watching = False
        self._connection: PipelinedConnection | None = None

    def start(self) -> None:
        """Open the connection for the last acks, and start watching when the worker begins to shut down."""
        signals.worker_shutting_down.connect(self._watch, weak=False)
        with suppress(RedisError, OSError):
            self._connection = PipelinedConnection(self._connect())
            self._connection.load(map(script, ("bury", "release", "retry", "turn")))

    def _watch(self, **_: Any) -> None:
        if not self._is_watching:  # Celery may send the signal twice
            self._is_watching = True
            threads.start_thread(self._wait)

    def _wait(self) -> None:
        client, pause = self._connect(), threads.Signal()
        while not self._must_exit(clock.now_s(), _answers(client), self._is_busy()):
            pause.wait(CHECK_EVERY_S)
        logger.warning(
            "lanes: Redis does not answer, and no handler runs here: the worker exits without waiting for it"
        )
        with suppress(Exception):
            self._send_last_acks()
        # Acks that Redis never reads are lost with this process: their leases expire, and the messages run again.
        os._exit(exit_code() or 0)

    def _send_last_acks(self) -> None:
        """Release and settle as ShutdownStep does, without waiting for answers."""
        if self._in_flight.forks:
            self._in_flight.release_all()
        else:
            self._in_flight.release_unclaimed()
        if self._connection is not None:
            pending = self._in_flight.pending_acks.everything()
            for command in pending.commands(holder=self._in_flight.holder, lease_ms=self._in_flight.lease_ms):
                self._connection.send_unawaited(UnawaitedCommand(command))

    def _must_exit(self, checked_s: float, answers: bool, is_busy: bool) -> bool:
        self._no_answer_since_s = None if answers else self._no_answer_since_s or checked_s
        self._idle_since_s = None if is_busy else self._idle_since_s or checked_s
        if self._no_answer_since_s is None or self._idle_since_s is None:
            return False
        now_s = clock.now_s()
        return now_s - self._no_answer_since_s >= NO_ANSWER_S and now_s - self._idle_since_s >= IDLE_S

    def _is_busy(self) -> bool:
        if self._in_flight.forks:  # the event loop, which reads the reports of the children, may be blocked
            self._in_flight.reports.read()
            return self._in_flight.is_running()
        return self._in_flight.is_running(also_lost=True) or bool(state.active_requests)


def _answers(client: Redis) -> bool:
    try:
        client.setrange(keys.COUNTS + ":none", 0, b"")  # a write that changes nothing: some servers answer only reads
    except ResponseError:
        return True
    except (RedisError, OSError):
        return False
    return True


def share_with_children() -> None:
    """Called in the worker's main process before its pool forks: its children see that the worker is stopping."""
    global _shared
    _shared = mmap.mmap(-1, 1)
    signals.worker_shutting_down.connect(_set)


def is_stopping() -> bool:
    return (_shared is not None and _shared[0] != 0) or exit_code() is not None


def exit_code() -> int | None:
    """The exit code with which Celery was asked to exit, which may be 0; None: it was not asked to exit."""
    for asked in (state.should_terminate, state.should_stop):
        if asked is not None and asked is not False:
            return int(asked)
    return None


def _set(**_: Any) -> None:
    if _shared is not None:
        _shared[0] = 1


class HandlerEndedError(Exception):
    """A handler raised a BaseException that is not an Exception."""


def ends_the_worker(error: BaseException) -> bool:
    """True if the error asks the worker to exit and is not a failure of the task. Signals arrive only on the main
    thread.
    """
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False  # the worker has its own handler for Ctrl-C, so the task itself has raised this
    is_exit = isinstance(error, _WORKER_EXITS) or threads.is_greenlet_exit(error)
    return is_exit and threads.is_main_thread()


def check_is_exception(error: BaseException, *, but: type[BaseException] = Exception) -> None:
    """Raise HandlerEndedError in place of a BaseException of a handler. Returns if the caller may re-raise `error`: it
    is an Exception or a `but`, or ends the worker.

    So sys.exit(), a cancelled future or a greenlet's timeout counts as a failure of the task, and a task that the
    shutdown of its process has interrupted as neither failed nor succeeded. Celery's pools lose a BaseException: the
    message would keep its lease and slot forever, and a solo worker would exit.
    """
    if terminate_handler_fired():
        # A cold shutdown raised SystemExit in the handler of this prefork child. `error` is that, or an error of the
        # handler's clean-up: neither is an outcome of the task.
        raise SystemExit from error
    if not isinstance(error, (Exception, but)) and not ends_the_worker(error):
        raise HandlerEndedError(f"the handler ended with {type(error).__name__}: {error}") from error
