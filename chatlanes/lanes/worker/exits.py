"""BaseExceptions that end a task.

Guarantees that sys.exit(), a cancelled future or a greenlet's timeout in a task is a failure of that task. Celery's
pools lose a BaseException: the message would keep its lease and its slot forever, and solo would end its worker.
Guarantees too that a task which was interrupted because its process was told to end has neither failed nor succeeded.
"""

from __future__ import annotations

import signal

from billiard.common import terminate_handler_fired
from celery.exceptions import WorkerShutdown, WorkerTerminate
from greenlet import GreenletExit  # type: ignore[import-untyped]

from chatlanes.lanes.runtime import os_threads

#: Raised inside a task when the worker is told to end.
_WORDS = (KeyboardInterrupt, WorkerShutdown, WorkerTerminate, GreenletExit)


class HandlerEndedError(Exception):
    """A handler raised a BaseException that is not an Exception."""


def ends_the_worker(error: BaseException) -> bool:
    """Whether it is no failure of the task that it was raised in. Signals are heard on the main thread only."""
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False  # a worker and its children handle Ctrl-C otherwise: the task has raised it
    return isinstance(error, _WORDS) and os_threads.is_main_thread()


def check_is_exception(error: BaseException, *, but: type[BaseException] = Exception) -> None:
    """For whoever caught what a handler raised, and goes on to raise it again: it leaves as an Exception, also if it is
    SystemExit. `but`, and what ends the worker, may pass as they are.
    """
    if terminate_handler_fired():
        # A cold shutdown told this prefork child to end, by raising SystemExit in the handler. What arrives here may
        # also be an error of the handler's own clean-up: neither is an outcome.
        raise SystemExit from error
    if not isinstance(error, (Exception, but)) and not ends_the_worker(error):
        raise HandlerEndedError(f"the handler ended with {type(error).__name__}: {error}") from error
