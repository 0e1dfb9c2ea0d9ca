"""The stop request, which ends every wait of the poller before a deadline; and calls that are retried until then.

Guarantees that no call made through this module delays the exit after the request: the caller stops waiting, and the
call continues on a daemon thread. So use it only for calls that may be cut off at any point, as all calls of the poller
may be (loop.py). A Retry logs one line when calls begin to fail, when the error changes, and when they succeed again.
"""

import logging
import math
import random
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import TIMEOUT_MAX, Event, Lock, Thread, current_thread
from typing import Any, TypeVar

from celery_lanes.errors import complaint
from celery_lanes.runtime.threads import Signal

T = TypeVar("T")
log = logging.getLogger("poller")

SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
#: The grace periods of all calls fit into this time, unless the request sets another.
DEFAULT_WITHIN_S = 2.0
FIRST_S = 1.0
#: 2 ** 10 exceeds every limit in use; a larger exponent could overflow.
DOUBLINGS = 10
#: A `retry_after` of 0 would retry without a pause.
LEAST_S = 0.5
#: Limit for an absurd `retry_after`, which must not stop the poller forever.
LONGEST_RETRY_AFTER_S = 3600.0


class Stopping(BaseException):
    """The poller must stop. Like KeyboardInterrupt, it is not an Exception."""


class Stop:
    """A stop request cannot be withdrawn. Any thread may make it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requested = Event()
        self._requested_at_s = math.inf  # on the monotonic clock
        self._extra_s = 0.0  # more time than the default
        self._in_flight_ended_s = -math.inf  # when the last call in flight ended
        self._changed: set[Signal] = set()  # one for each call in progress
        self._idle: list[SerialExecutor] = []  # starting a thread takes longer than handing it a call

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
                for changed in list(self._changed):
                    changed.set()
                while self._idle:  # one that is ending takes no further call
                    self._idle.pop().end()

    def request_on_signals(self) -> None:
        """From now on SIGTERM and SIGINT request the stop. Call it on the main thread, before other threads start.

        A thread waits for them: a signal handler could interrupt the holder of the lock that `request` needs.
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
        return self._run(call, lambda: self._leave_at_s(grace_s), grace_s)

    def run_in_flight(self, call: Callable[[], T], grace_s: float) -> T:
        """Like `run`, for calls with updates in flight, which get the extra time of the request."""
        try:
            return self._run(call, lambda: self._in_flight_until_s(grace_s), grace_s)
        finally:
            self._in_flight_ended_s = time.monotonic()

    def _run(self, function: Callable[[], T], leave_at_s: Callable[[], float], grace_s: float) -> T:
        def named() -> T:
            current_thread().name = name  # the log contains it
            return function()

        name, thread, changed = current_thread().name, self._thread(), Signal()
        # Before the call starts, so that `request` wakes it.
        self._changed.add(changed)
        call = thread.submit(named)
        call.add_done_callback(lambda _: changed.set())
        try:
            while not call.done():
                left_s = leave_at_s() - time.monotonic() if self.is_requested else math.inf
                if left_s <= 0:
                    raise Stopping
                changed.wait(min(left_s, TIMEOUT_MAX))
            return call.result()
        finally:
            self._changed.discard(changed)
            self._put_back(thread, is_idle=call.done())
            del call  # the traceback of its error refers to it

    def _thread(self) -> "SerialExecutor":
        with self._lock:
            return self._idle.pop() if self._idle else SerialExecutor("call")

    def _put_back(self, thread: "SerialExecutor", *, is_idle: bool) -> None:
        with self._lock:
            if is_idle and not self.is_requested:
                self._idle.append(thread)
            else:
                thread.end()  # after its call

    def _leave_at_s(self, grace_s: float) -> float:
        """A call in flight may take long. The calls after it still have their own grace period, within the limit."""
        requested_s = self._requested_at_s
        return min(max(requested_s, self._in_flight_ended_s) + grace_s, requested_s + grace_s + max(self._extra_s, 0.0))

    def _in_flight_until_s(self, grace_s: float) -> float:
        return self._requested_at_s + (max(grace_s + self._extra_s, 0.0) if grace_s else 0.0)


class OwnThreadStop(Stop):
    """The stop of one of many bots: its calls run on the bot's own daemon thread, which needs no second one.

    So a call without a grace period (a long poll) is not left at the request; `may_be_left` is true while one runs, and
    the process may end then. Its outcome is discarded. All other calls end in time by their own timeouts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_be_left = False

    def _run(self, function: Callable[[], T], leave_at_s: Callable[[], float], grace_s: float) -> T:
        if self.is_requested and leave_at_s() <= time.monotonic():
            raise Stopping
        self.may_be_left = not grace_s
        try:
            return function()
        finally:
            if self.may_be_left and self.is_requested:
                raise Stopping
            self.may_be_left = False


class SerialExecutor:
    """Runs plain functions on one daemon thread, in order: a call that never returns does not keep the process alive.

    The thread starts with the first call, and again in a child that was forked.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Its future result or error."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        result: Future[T] = Future()
        self._calls.put((function, result))
        return result

    def call(self, function: Callable[[], T]) -> T:
        """Returns its result or raises its error."""
        return self.submit(function).result()

    def end(self) -> None:
        """Ends the thread after the calls that were made before."""
        self._calls.put(None)

    def _serve(self) -> None:
        while work := self._calls.get():
            function, result = work
            if not result.set_running_or_notify_cancel():
                continue
            try:
                result.set_result(function())
            except BaseException as error:  # the caller gets every outcome
                result.set_exception(error)


def delay_s(failures: int, longest_s: float, spread: float, retry_after_s: float | None = None) -> float:
    """Seconds to wait after this number of `failures` in a row.

    `spread`, in 0 … 1, places the wait within the upper half of its range (AWS Architecture Blog, "Exponential
    Backoff and Jitter": equal jitter). `retry_after_s` is the wait that the server asks for, any number except NaN. It
    overrides `longest_s`.
    """
    if retry_after_s is not None:
        return min(max(retry_after_s, LEAST_S), LONGEST_RETRY_AFTER_S)
    ceiling_s = min(FIRST_S * 2.0 ** min(failures - 1, DOUBLINGS), longest_s)
    return ceiling_s * (0.5 + 0.5 * spread)


class GaveUpError(Exception):
    """The server failed for longer than the limit."""


class Retry:
    """Retries calls to one server, Telegram or Redis, after errors of the type `retried` only. The pause doubles up to
    `longest_s`, with jitter. `trouble` is the last error while calls fail.

    `advice` says what to do about an error; empty: nothing to add.
    Gives up after `give_up_after_s` of failures without a success; None: never.
    """

    def __init__(
        self,
        name: str,
        retried: type[Exception],
        stop: Stop,
        *,
        longest_s: float,
        give_up_after_s: float | None = None,
        advice: Callable[[Exception], str] = lambda _: "",
    ) -> None:
        self._name = name
        self._advice = advice
        self._retried = retried
        self._stop = stop
        self._longest_s = longest_s
        self._give_up_after_s = give_up_after_s
        self._failures = 0
        self._since_s = 0.0
        self.trouble: Exception | None = None

    def call(self, call: Callable[[], T], grace_s: float = 0.0) -> T:
        """The result of `call`, after as many attempts as needed. Raises GaveUpError, and Stopping `grace_s` after a
        stop request.
        """
        while True:
            try:
                result = self._stop.run_in_flight(call, grace_s)
            except self._retried as error:
                self._failed(error, grace_s)
            else:
                self._worked()
                return result

    def _failed(self, error: Exception, grace_s: float) -> None:
        if self.trouble is None:
            self._failures, self._since_s = 0, time.monotonic()
        self._failures += 1
        left_s = self._left_s(error)
        wait_s = delay_s(self._failures, self._longest_s, random.random(), getattr(error, "retry_after_s", None))  # noqa: S311
        message = complaint(error)
        if self.trouble is None or message != complaint(self.trouble):
            what = "; ".join(filter(None, [message.rstrip("."), self._advice(error)]))
            log.warning("%s: %s; retrying, next attempt in %.1f s", self._name, what, wait_s)
        self.trouble = error
        self._stop.sleep(min(wait_s, left_s), grace_s)

    def _left_s(self, error: Exception) -> float:
        """The time left until the limit. Raises GaveUpError if it is reached."""
        if self._give_up_after_s is None:
            return math.inf
        lasted_s = time.monotonic() - self._since_s
        if lasted_s >= self._give_up_after_s:
            raise GaveUpError(
                f"{self._name}: {complaint(error)}; gave up after {lasted_s:.1f} s of failures"
            ) from error
        return self._give_up_after_s - lasted_s

    def _worked(self) -> None:
        if self.trouble is not None:
            log.info("%s: works again, after %.1f s", self._name, time.monotonic() - self._since_s)
            self.trouble = None
