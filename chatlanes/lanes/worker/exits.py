"""BaseExceptions that end a task.

Guarantees that sys.exit(), a cancelled future or a greenlet's timeout in a task counts as a failure of that task, and
that a task interrupted by the shutdown of its process counts as neither failed nor succeeded. Celery's pools lose a
BaseException: the message would keep its lease and slot forever, and a solo worker would exit.
"""

from __future__ import annotations

import signal

from billiard.common import terminate_handler_fired
from celery.exceptions import WorkerShutdown, WorkerTerminate
from greenlet import GreenletExit  # type: ignore[import-untyped]

from chatlanes.lanes.runtime import os_threads

#: Raised inside a task when the worker is asked to exit.
_WORKER_EXITS = (KeyboardInterrupt, WorkerShutdown, WorkerTerminate, GreenletExit)


class HandlerEndedError(Exception):
    """A handler raised a BaseException that is not an Exception."""


def ends_the_worker(error: BaseException) -> bool:
    """True if the error asks the worker to exit and is not a failure of the task. Signals arrive only on the main
    thread.
    """
    if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False  # the worker has its own handler for Ctrl-C, so the task itself has raised this
    return isinstance(error, _WORKER_EXITS) and os_threads.is_main_thread()


def check_is_exception(error: BaseException, *, but: type[BaseException] = Exception) -> None:
    """Raise HandlerEndedError in place of a BaseException of a handler, such as SystemExit. Returns if the caller may
    re-raise `error`: it is an Exception or a `but`, or ends the worker.
    """
    if terminate_handler_fired():
        # A cold shutdown raised SystemExit in the handler of this prefork child. `error` is that, or an error of the
        # handler's clean-up: neither is an outcome of the task.
        raise SystemExit from error
    if not isinstance(error, (Exception, but)) and not ends_the_worker(error):
        raise HandlerEndedError(f"the handler ended with {type(error).__name__}: {error}") from error
