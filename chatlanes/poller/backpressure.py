"""Room for more: at a backlog limit nothing is fetched, below it no more than fits; Telegram holds the rest.

Promises that no more than `max_pending` updates wait or run because of this poller: others may append besides.
Does not spare Telegram's own limits: beyond 100,000 waiting updates, or their time to live, it drops some itself.
"""

import logging
import sys
import time

from chatlanes.poller.retry import Patience
from chatlanes.poller.stop import Stop
from chatlanes.poller.telegram import BATCH
from chatlanes.updates.intake import Intake

log = logging.getLogger("poller")

#: A look is one read. Workers may drain a small backlog in no time, a large one takes them long.
LOOK_AFTER_S, LOOK_EVERY_S = 0.05, 0.5
#: Batches of one or two, at the edge of the limit, cost Redis and Telegram as much as full ones. So fetching goes on
#: when this part of the limit is free, or a whole batch.
FREE_PART = 0.1
#: Under constant overload the backlog reaches the limit every other second: told once, then only every so often.
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
        if not self._is_room():
            level = self._level()
            log.log(level, "backlog %d, MAX_PENDING %d: fetching stops", self.pending, self._max_pending)
            every_s = LOOK_AFTER_S
            while not self._is_room():
                self._stop.sleep(every_s)
                self.look()
                every_s = min(2 * every_s, LOOK_EVERY_S)
            log.log(level, "backlog %d: fetching goes on", self.pending)
        return self._max_pending - self.pending

    def _is_room(self) -> bool:
        least = min(max(round(FREE_PART * self._max_pending), 1), BATCH)
        return self._max_pending - self.pending >= least

    def _level(self) -> int:
        now_s = time.monotonic()
        if now_s - self._told_at_s < TELL_EVERY_S:
            return logging.DEBUG
        self._told_at_s = now_s
        return logging.WARNING
