"""How the poller ends: at once, whatever it waits for, and never later than a last moment.

Promises that no call made through here holds the process once it was asked to stop: the caller walks away from it.
Does not end the call itself: it goes on, on a daemon thread, until the process is gone. So only calls that may die
at any point are made through here; every call of the poller is one, see loop.py.
"""

import signal
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from threading import Thread, current_thread
from typing import Any, TypeVar

T = TypeVar("T")

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


class Stopping(BaseException):
    """The poller was asked to stop. Like KeyboardInterrupt no error: `except Exception` does not swallow it."""


class Stop:
    """Asked once, for ever. Safe to ask from any thread."""

    def __init__(self) -> None:
        self._asked: Future[float] = Future()  # when, on the monotonic clock

    @property
    def is_asked(self) -> bool:
        return self._asked.done()

    def ask(self) -> None:
        if not self._asked.done():
            self._asked.set_result(time.monotonic())

    def ask_on_signals(self) -> None:
        """SIGTERM and SIGINT ask from now on. To be called on the main thread, before any other is started.

        A thread waits for them. A handler would run on the main thread at any point, also while that holds the
        very lock that `ask` needs.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        Thread(target=self._wait_for_signal, name="signals", daemon=True).start()

    def _wait_for_signal(self) -> None:
        signal.sigwait(SIGNALS)
        self.ask()

    def sleep(self, seconds: float) -> None:
        """Raises Stopping when asked before the time is over."""
        wait([self._asked], timeout=max(seconds, 0.0))
        if self.is_asked:
            raise Stopping

    def run(self, call: Callable[[], T], grace_s: float = 0.0) -> T:
        """What `call` returns or raises; Stopping when it is still busy so long after the poller was asked to stop."""
        result = _on_a_thread(call)
        _wait_for_either(result, self._asked)
        if self.is_asked:
            wait([result], timeout=max(self._asked.result() + grace_s - time.monotonic(), 0.0))
        if not result.done():
            raise Stopping
        return result.result()


def _wait_for_either(one: Future[Any], other: Future[Any]) -> None:
    wait([one, other], return_when=FIRST_COMPLETED)


def _on_a_thread(call: Callable[[], T]) -> Future[T]:
    """A thread for each call costs about 0.1 ms, on a batch of 100 updates. It has its caller's name, for the log."""
    result: Future[T] = Future()
    Thread(target=_run, args=(call, result), name=current_thread().name, daemon=True).start()
    return result


def _run(call: Callable[[], T], result: Future[T]) -> None:
    try:
        result.set_result(call())
    except BaseException as error:  # every end of the call is the caller's to see
        result.set_exception(error)
