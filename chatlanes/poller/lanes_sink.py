"""The lanes as a sink: appends the updates that the filter admits to Redis, and retries until they are durable.

Guarantees that all admitted updates are durable and counted when `append` returns, and that nothing is appended after
the lead was lost. At `max_pending` nothing is fetched, and below it at most what fits; other pollers may append more.
Telegram holds the rest, but drops updates beyond 100,000 or after their time to live.
"""

import logging
import time
from dataclasses import dataclass, field
from typing import Any

from celery_lanes.protocol import Appended
from chatlanes.poller.bot_api import BATCH
from chatlanes.poller.filter import Filter
from chatlanes.poller.leader_election import LeaderElection
from chatlanes.poller.loop import APPEND_GRACE_S
from chatlanes.poller.progress import Progress
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


@dataclass
class LanesSink:
    """`lead`: None if no other poller reads the source."""

    intake: Intake
    filtering: Filter
    lead: LeaderElection | None
    max_pending: int
    progress: Progress
    redis_retry: Retry
    stop: Stop

    #: The backlog when it was last read, by `refresh` or with an append.
    _pending: int = field(default=0, init=False)
    _logged_at_s: float = field(default=float("-inf"), init=False)

    def append(self, updates: list[Any]) -> None:
        """Raises Stopping if the updates are not known to be durable in time; they may be appended again.

        Raises LeaseLost if another poller leads; nothing was appended.
        """
        wanted = self.filtering.admitted(updates)
        appended = None
        if wanted:
            appended = self._durably(wanted)
            self._pending = appended.pending
        else:
            self.redis_retry.call(self.intake.recheck)
        self.progress.count(updates, len(updates) - len(wanted), appended)

    def size(self) -> int:
        """The backlog, read from Redis. Raises RedisError."""
        return self.intake.pending()

    def refresh(self) -> None:
        """Reads the backlog. Raises Stopping."""
        self._pending = self.redis_retry.call(self.intake.pending)

    def room(self) -> int:
        """Waits until more updates fit; returns how many. Raises Stopping."""
        if not self._has_room():
            level = self._level()
            log.log(level, "backlog %d, MAX_PENDING %d: fetching stops", self._pending, self.max_pending)
            every_s = READ_AFTER_S
            while not self._has_room():
                self.stop.sleep(every_s)
                self.refresh()
                every_s = min(2 * every_s, READ_EVERY_S)
            log.log(level, "backlog %d: fetching continues", self._pending)
        return self.max_pending - self._pending

    def _durably(self, updates: list[Any]) -> Appended:
        guard = self.lead.guard if self.lead else None
        return self.redis_retry.call(lambda: self.intake.append(updates, guard), APPEND_GRACE_S)

    def _has_room(self) -> bool:
        least = min(max(round(FREE_PART * self.max_pending), 1), BATCH)
        return self.max_pending - self._pending >= least

    def _level(self) -> int:
        now_s = time.monotonic()
        if now_s - self._logged_at_s < LOG_EVERY_S:
            return logging.DEBUG
        self._logged_at_s = now_s
        return logging.WARNING
