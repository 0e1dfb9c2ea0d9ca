"""Trying for ever: waits longer after each failure, and speaks only when the state changes.

Promises one log line when trouble begins, one when it becomes another trouble, one when it is over.
Does not judge: which errors are worth another try is the caller's word; all others go up.
"""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from poller.backoff import delay_s
from poller.stop import Stop

T = TypeVar("T")
log = logging.getLogger("poller")


class Patience:
    """With one other side, Telegram or Redis. A call still busy `grace_s` after the poller was asked to stop is left.

    `trouble` is the last error while there is any.
    """

    def __init__(
        self, name: str, worth_another_try: type[Exception], stop: Stop, *, longest_s: float, grace_s: float
    ) -> None:
        self._name = name
        self._worth_another_try = worth_another_try
        self._stop = stop
        self._longest_s = longest_s
        self._grace_s = grace_s
        self._failures = 0
        self._since_s = 0.0
        self.trouble: Exception | None = None

    def until_it_works(self, call: Callable[[], T]) -> T:
        """What `call` returns, however often it has to be tried. Raises Stopping."""
        while True:
            try:
                result = self._stop.run(call, self._grace_s)
            except self._worth_another_try as error:
                self._failed(error)
            else:
                self._worked()
                return result

    def _failed(self, error: Exception) -> None:
        if self.trouble is None:
            self._failures, self._since_s = 0, time.monotonic()
        self._failures += 1
        wait_s = delay_s(self._failures, self._longest_s, random.random(), getattr(error, "retry_after_s", None))  # noqa: S311
        if self.trouble is None or _told(error) != _told(self.trouble):
            log.warning("%s: %s; trying again until it works, next in %.1f s", self._name, _told(error), wait_s)
        self.trouble = error
        self._stop.sleep(wait_s)

    def _worked(self) -> None:
        if self.trouble is not None:
            log.info("%s: works again, after %.1f s", self._name, time.monotonic() - self._since_s)
            self.trouble = None


def _told(error: Exception) -> str:
    """Without what redis-py adds when no Sentinel answers: a page about each client, memory addresses included."""
    return str(error).partition(" : <")[0]
