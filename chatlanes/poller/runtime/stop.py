"""The stop request: ends every wait of the poller, no later than a deadline.

Guarantees that no call made through here holds the process after the request: the caller stops waiting for it. Does not
end the call itself: it goes on, on a daemon thread, until the process exits. So only calls that may be cut off at any
point are made through here; every call of the poller is one, see loop.py.
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
    """The poller was asked to stop. Like KeyboardInterrupt, it is not an Exception."""


#: The graces of all calls fit into this time, unless the request sets another.
USUALLY_WITHIN_S = 2.0


class Stop:
    """Once requested, always requested. Any thread may request it."""

    def __init__(self) -> None:
        self._asking = Lock()
        self._asked = Event()
        self._asked_at_s = math.inf  # on the monotonic clock
        self._more_s = 0.0  # than usual
        self._in_flight_ended_s = -math.inf  # when the last call of that kind was over
        self._executor = DetachingExecutor()
        self._calls: set[DetachableCall] = set()  # under way

    @property
    def is_requested(self) -> bool:
        return self._asked.is_set()

    def ask(self, within_s: float | None = USUALLY_WITHIN_S) -> None:
        """Everything ends `within_s` from now; None: what is in flight is completed, however long that takes."""
        with self._asking:
            if not self.is_requested:
                self._more_s = math.inf if within_s is None else within_s - USUALLY_WITHIN_S
                self._asked_at_s = time.monotonic()
                self._asked.set()
                for call in list(self._calls):
                    call.wake()

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

    def sleep(self, seconds: float, grace_s: float = 0.0) -> None:
        """Raises Stopping when asked before the time is over; with a grace, `grace_s` after that."""
        over_s = time.monotonic() + max(seconds, 0.0)
        if seconds > 0:
            self._asked.wait(seconds)
        if self.is_requested:
            leave_s = self._in_flight_until_s(grace_s)
            time.sleep(max(min(leave_s, over_s) - time.monotonic(), 0.0))
            if leave_s <= over_s:
                raise Stopping

    def run(self, call: Callable[[], T], grace_s: float = 0.0) -> T:
        """What `call` returns or raises; Stopping when it is still busy so long after the poller was asked to stop."""
        return self._run(call, lambda: self._leave_at_s(grace_s))

    def run_in_flight(self, call: Callable[[], T], grace_s: float) -> T:
        """The same for what is in flight, with the extra time that the request gives."""
        try:
            return self._run(call, lambda: self._in_flight_until_s(grace_s))
        finally:
            self._in_flight_ended_s = time.monotonic()

    def _run(self, call: Callable[[], T], leave_at_s: Callable[[], float]) -> T:
        made = DetachableCall(call)
        # In this order: `ask` wakes it from now on.
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
        """What is in flight may take long; the calls after it still have their own grace, within the limit."""
        asked_s = self._asked_at_s
        return min(max(asked_s, self._in_flight_ended_s) + grace_s, asked_s + grace_s + max(self._more_s, 0.0))

    def _in_flight_until_s(self, grace_s: float) -> float:
        return self._asked_at_s + (max(grace_s + self._more_s, 0.0) if grace_s else 0.0)
