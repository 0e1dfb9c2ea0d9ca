"""The lanes as a sink: appends the updates that the filter admits to Redis, and retries until they are durable.

Guarantees that all admitted updates are durable and counted when `append` returns. Does not append after the lead was
lost: each append carries the guard of the lead.
"""

from dataclasses import dataclass
from typing import Any

from chatlanes.lanes.protocol.replies import Appended
from chatlanes.poller.filter import Filter
from chatlanes.poller.polling.backpressure import Backpressure, NoBackpressure
from chatlanes.poller.polling.leader_election import LeaderElection, SoleLeader
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import Retry
from chatlanes.updates.intake import Intake

#: How long the poller waits for the append in flight after the stop request.
APPEND_GRACE_S = 0.9


@dataclass
class LanesSink:
    intake: Intake
    filtering: Filter
    lead: LeaderElection | SoleLeader
    backpressure: Backpressure | NoBackpressure
    progress: Progress
    redis_retry: Retry

    def append(self, updates: list[Any]) -> None:
        """Raises Stopping if the updates are not known to be durable in time; they may be appended again.

        Raises LeaseLost if another poller leads; nothing was appended.
        """
        wanted = self.filtering.admitted(updates)
        appended = None
        if wanted:
            appended = self._durably(wanted)
            self.backpressure.pending = appended.pending
        else:
            self.redis_retry.call(self.intake.recheck)
        self.progress.count(updates, len(updates) - len(wanted), appended)

    def size(self) -> int:
        """The backlog, read from Redis. Raises RedisError."""
        return self.intake.pending()

    def _durably(self, updates: list[Any]) -> Appended:
        return self.redis_retry.call(lambda: self.intake.append(updates, self.lead.guard), APPEND_GRACE_S)
