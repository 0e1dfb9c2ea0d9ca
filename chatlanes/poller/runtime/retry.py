"""Retry with backoff, optionally bounded. Logs state changes only.

Guarantees one log line when calls begin to fail, one when the error changes, and one when they succeed again. Retries
only the errors that the caller names. The wait doubles up to a limit, with jitter.
"""

import logging
import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from chatlanes.lanes.errors import complaint
from chatlanes.poller.runtime.stop import Stop

FIRST_S = 1.0
#: 2 ** 10 exceeds every limit in use; a larger exponent could overflow.
DOUBLINGS = 10
#: A `retry_after` of 0 would retry without a pause.
LEAST_S = 0.5
#: Limit for an absurd `retry_after`, which must not stop the poller forever.
LONGEST_RETRY_AFTER_S = 3600.0


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


T = TypeVar("T")
log = logging.getLogger("poller")


class GaveUpError(Exception):
    """The server failed for longer than the limit."""


class Retry:
    """Retries calls to one server, Telegram or Redis. `trouble` is the last error while calls fail.

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
