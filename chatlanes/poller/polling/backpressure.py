"""Backpressure: nothing is fetched at the backlog limit, and below it at most what fits. Telegram holds the rest.

Guarantees that this poller makes no more than `max_pending` updates wait or run; other pollers may append more. Does
not remove the limits of Telegram, which drops updates beyond 100,000 or after their time to live.
"""

import logging
import sys
import time

from chatlanes.poller.bot_api import BATCH
from chatlanes.poller.runtime import Retry, Stop
from chatlanes.updates.intake import Intake

log = logging.getLogger("poller")

#: The first and the longest pause between reads of the backlog. Workers finish a small backlog at once, a large one
#: takes long.
READ_AFTER_S, READ_EVERY_S = 0.05, 0.5
#: A batch of one or two updates costs Redis and Telegram as much as a full one. So fetching resumes only when this part
#: of the limit is free, or a full batch fits.
FREE_PART = 0.1
#: Under constant overload the backlog reaches the limit every other second. This bounds the log lines.
LOG_EVERY_S = 30.0


class NoBackpressure:
    """For a custom sink, which delays its source by not returning."""

    pending = 0

    def refresh(self) -> None:
        pass

    def wait(self) -> int:
        return sys.maxsize


class Backpressure:
    """`pending` is the backlog when it was last read, by `refresh` or with an append."""

    def __init__(self, intake: Intake, max_pending: int, redis_retry: Retry, stop: Stop) -> None:
        self._intake = intake
        self._max_pending = max_pending
        self._with_redis = redis_retry
        self._stop = stop
        self._logged_at_s = float("-inf")
        self.pending = 0

    def refresh(self) -> None:
        """Reads the backlog, which other pollers may have changed. Raises Stopping."""
        self.pending = self._with_redis.call(self._intake.pending)

    def wait(self) -> int:
        """Waits until more updates fit; returns how many. Raises Stopping."""
        if not self._has_room():
            level = self._level()
            log.log(level, "backlog %d, MAX_PENDING %d: fetching stops", self.pending, self._max_pending)
            every_s = READ_AFTER_S
            while not self._has_room():
                self._stop.sleep(every_s)
                self.refresh()
                every_s = min(2 * every_s, READ_EVERY_S)
            log.log(level, "backlog %d: fetching continues", self.pending)
        return self._max_pending - self.pending

    def _has_room(self) -> bool:
        least = min(max(round(FREE_PART * self._max_pending), 1), BATCH)
        return self._max_pending - self.pending >= least

    def _level(self) -> int:
        now_s = time.monotonic()
        if now_s - self._logged_at_s < LOG_EVERY_S:
            return logging.DEBUG
        self._logged_at_s = now_s
        return logging.WARNING
