"""The lanes as a sink: appends to Redis what the filter admits, and retries until it is durable.

Guarantees that when `append` returns, all that was admitted is durable and counted. Does not append under a lead that
was lost: each append carries the guard of the lead.
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

#: How long after it was asked to stop the poller still waits for Redis to take the batch in hand.
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
        """Raises Stopping before Redis holds them durably, and then nobody knows: they may be appended again.

        Raises LeaseLost when another poller leads by now; nothing was appended.
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
        """Asks Redis. Raises RedisError."""
        return self.intake.pending()

    def _durably(self, updates: list[Any]) -> Appended:
        return self.redis_retry.call(lambda: self.intake.append(updates, self.lead.guard), APPEND_GRACE_S)
