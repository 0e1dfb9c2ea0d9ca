"""The stop request: ends every wait of the poller before a deadline.

Guarantees that no call made through this module delays the exit after the request, because the caller stops waiting.
Does not end the call itself: it continues on a daemon thread until the process exits. So use it only for calls that may
be cut off at any point, as all calls of the poller may be (see loop.py).
"""

import math
import signal
import time
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import TypeVar

from chatlanes.poller.runtime.executor import DetachableCall, DetachingExecutor

T = TypeVar("T")

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})


class Stopping(BaseException):
    """The poller must stop. Like KeyboardInterrupt, it is not an Exception."""


#: The grace periods of all calls fit into this time, unless the request sets another.
DEFAULT_WITHIN_S = 2.0


class Stop:
    """A stop request cannot be withdrawn. Any thread may make it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requested = Event()
        self._requested_at_s = math.inf  # on the monotonic clock
        self._extra_s = 0.0  # more time than the default
        self._in_flight_ended_s = -math.inf  # when the last call in flight ended
        self._executor = DetachingExecutor()
        self._calls: set[DetachableCall] = set()  # in progress

    @property
    def is_requested(self) -> bool:
        return self._requested.is_set()

    def request(self, within_s: float | None = DEFAULT_WITHIN_S) -> None:
        """Everything ends `within_s` from now; None: updates in flight are completed, however long that takes."""
        with self._lock:
            if not self.is_requested:
                self._extra_s = math.inf if within_s is None else within_s - DEFAULT_WITHIN_S
                self._requested_at_s = time.monotonic()
                self._requested.set()
                for call in list(self._calls):
                    call.wake()

    def request_on_signals(self) -> None:
        """From now on SIGTERM and SIGINT request the stop. Call it on the main thread, before other threads start.

        A thread waits for the signals. A signal handler would run on the main thread at any point, even while that
        holds the lock that `request` needs.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        Thread(target=self._wait_for_signal, name="signals", daemon=True).start()

    def _wait_for_signal(self) -> None:
        signal.sigwait(SIGNALS)
        self.request()

    def sleep(self, seconds: float, grace_s: float = 0.0) -> None:
        """Raises Stopping if a stop is requested before the time is over, `grace_s` after the request."""
        over_s = time.monotonic() + max(seconds, 0.0)
        if seconds > 0:
            self._requested.wait(seconds)
        if self.is_requested:
            leave_s = self._in_flight_until_s(grace_s)
            time.sleep(max(min(leave_s, over_s) - time.monotonic(), 0.0))
            if leave_s <= over_s:
                raise Stopping

    def run(self, call: Callable[[], T], grace_s: float = 0.0) -> T:
        """Returns or raises the outcome of `call`. Raises Stopping if it runs for `grace_s` after a stop request."""
        return self._run(call, lambda: self._leave_at_s(grace_s))

    def run_in_flight(self, call: Callable[[], T], grace_s: float) -> T:
        """Like `run`, for calls with updates in flight, which get the extra time of the request."""
        try:
            return self._run(call, lambda: self._in_flight_until_s(grace_s))
        finally:
            self._in_flight_ended_s = time.monotonic()

    def _run(self, call: Callable[[], T], leave_at_s: Callable[[], float]) -> T:
        made = DetachableCall(call)
        # Before the call starts, so that `request` wakes it.
        self._calls.add(made)
        try:
            self._executor.submit(made)
            while not made.is_over:
                left_s = leave_at_s() - time.monotonic() if self.is_requested else math.inf
                if left_s <= 0:
                    raise Stopping
                made.wait(left_s)
        finally:
            self._calls.discard(made)
        result: T = made.outcome()
        return result

    def _leave_at_s(self, grace_s: float) -> float:
        """A call in flight may take long. The calls after it still have their own grace period, within the limit."""
        requested_s = self._requested_at_s
        return min(max(requested_s, self._in_flight_ended_s) + grace_s, requested_s + grace_s + max(self._extra_s, 0.0))

    def _in_flight_until_s(self, grace_s: float) -> float:
        return self._requested_at_s + (max(grace_s + self._extra_s, 0.0) if grace_s else 0.0)
