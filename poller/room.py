"""Room for more: at a backlog limit nothing is fetched, below it no more than fits; Telegram holds the rest.

Promises that no more than `max_pending` updates wait or run because of this poller: others may append besides.
Does not spare Telegram's own limits: beyond 100,000 waiting updates, or their time to live, it drops some itself.
"""

import logging
import sys
import time

from poller.patience import Patience
from poller.stop import Stop
from tasks.intake import Intake

log = logging.getLogger("poller")

LOOK_EVERY_S = 0.5
#: Under constant overload the backlog crosses the limit every other second: told once, then only every so often.
TELL_EVERY_S = 30.0


class Boundless:
    """Where nobody counts: a sink of one's own holds its source up by not returning."""

    pending = 0

    def look(self) -> None:
        pass

    def wait(self) -> int:
        return sys.maxsize


class Room:
    """`pending` is the backlog as last heard of: by `look`, or with an append."""

    def __init__(self, intake: Intake, max_pending: int, with_redis: Patience, stop: Stop) -> None:
        self._intake = intake
        self._max_pending = max_pending
        self._with_redis = with_redis
        self._stop = stop
        self._told_at_s = float("-inf")
        self.pending = 0

    def look(self) -> None:
        """How much is waiting now, left by another poller maybe. Raises Stopping."""
        self.pending = self._with_redis.until_it_works(self._intake.pending)

    def wait(self) -> int:
        """Returns when there is room, for how many updates. Raises Stopping."""
        if self.pending >= self._max_pending:
            level = self._level()
            log.log(level, "backlog %d, MAX_PENDING %d: fetching stops", self.pending, self._max_pending)
            while self.pending >= self._max_pending:
                self._stop.sleep(LOOK_EVERY_S)
                self.look()
            log.log(level, "backlog %d: fetching goes on", self.pending)
        return self._max_pending - self.pending

    def _level(self) -> int:
        now_s = time.monotonic()
        if now_s - self._told_at_s < TELL_EVERY_S:
            return logging.DEBUG
        self._told_at_s = now_s
        return logging.WARNING
