"""Trying for ever, unless told for how long: waits longer after each failure, speaks only when the state changes.

Promises one log line when trouble begins, one when it becomes another trouble, one when it is over.
Does not judge: which errors are worth another try is the caller's word; all others go up.
"""

import logging
import math
import random
import time
from collections.abc import Callable
from typing import TypeVar

from chatlanes.lanes.errors import complaint
from chatlanes.poller.backoff import delay_s
from chatlanes.poller.stop import Stop

T = TypeVar("T")
log = logging.getLogger("poller")


class GaveUpError(Exception):
    """The other side was in trouble for longer than anybody wants to wait."""


class Patience:
    """With one other side, Telegram or Redis. `trouble` is the last error while there is any.

    `give_up_after_s` of trouble without a break it gives up; None: never.
    """

    def __init__(
        self,
        name: str,
        worth_another_try: type[Exception],
        stop: Stop,
        *,
        longest_s: float,
        give_up_after_s: float | None = None,
    ) -> None:
        self._name = name
        self._worth_another_try = worth_another_try
        self._stop = stop
        self._longest_s = longest_s
        self._give_up_after_s = give_up_after_s
        self._failures = 0
        self._since_s = 0.0
        self.trouble: Exception | None = None

    def until_it_works(self, call: Callable[[], T], seeing_through_s: float = 0.0) -> T:
        """What `call` returns, however often it has to be tried. Raises GaveUpError, and Stopping when asked to stop:
        at once, or for what is in hand after a grace of `seeing_through_s`.
        """
        while True:
            try:
                result = self._stop.see_through(call, seeing_through_s)
            except self._worth_another_try as error:
                self._failed(error, seeing_through_s)
            else:
                self._worked()
                return result

    def _failed(self, error: Exception, seeing_through_s: float) -> None:
        if self.trouble is None:
            self._failures, self._since_s = 0, time.monotonic()
        self._failures += 1
        left_s = self._left_s(error)
        wait_s = delay_s(self._failures, self._longest_s, random.random(), getattr(error, "retry_after_s", None))  # noqa: S311
        told = complaint(error)
        if self.trouble is None or told != complaint(self.trouble):
            log.warning("%s: %s; trying again until it works, next in %.1f s", self._name, told, wait_s)
        self.trouble = error
        self._stop.sleep(min(wait_s, left_s), seeing_through_s)

    def _left_s(self, error: Exception) -> float:
        """Until it is given up. Raises GaveUpError when that is now."""
        if self._give_up_after_s is None:
            return math.inf
        lasted_s = time.monotonic() - self._since_s
        if lasted_s >= self._give_up_after_s:
            raise GaveUpError(
                f"{self._name}: {complaint(error)}; given up after {lasted_s:.1f} s of trouble"
            ) from error
        return self._give_up_after_s - lasted_s

    def _worked(self) -> None:
        if self.trouble is not None:
            log.info("%s: works again, after %.1f s", self._name, time.monotonic() - self._since_s)
            self.trouble = None
