"""The lanes as a sink: what the filter lets in is appended to Redis, however long that takes.

Promises that when `append` returns, all that was let in is durable and counted.
Does not append under a lead that was lost: the guard of the lead goes with each append.
"""

from dataclasses import dataclass
from typing import Any

from chatlanes.lanes.protocol.replies import Appended
from chatlanes.poller.backpressure import Boundless, Room
from chatlanes.poller.filter import Filter
from chatlanes.poller.leader import Alone, Lead
from chatlanes.poller.report import Tally
from chatlanes.poller.retry import Patience
from chatlanes.updates.intake import Intake

#: How long after it was asked to stop the poller still waits for Redis to take the batch in hand.
APPEND_GRACE_S = 0.9


@dataclass
class LanesSink:
    intake: Intake
    filtering: Filter
    lead: Lead | Alone
    room: Room | Boundless
    tally: Tally
    with_redis: Patience

    def append(self, updates: list[Any]) -> None:
        """Raises Stopping before Redis holds them durably, and then nobody knows: they may be appended again.

        Raises LeaseLost when another poller leads by now; nothing was appended.
        """
        wanted = self.filtering.admitted(updates)
        appended = None
        if wanted:
            appended = self._durably(wanted)
            self.room.pending = appended.pending
        else:
            self.with_redis.until_it_works(self.intake.recheck)
        self.tally.count(updates, len(updates) - len(wanted), appended)

    def size(self) -> int:
        """Asks Redis. Raises RedisError."""
        return self.intake.pending()

    def _durably(self, updates: list[Any]) -> Appended:
        return self.with_redis.until_it_works(lambda: self.intake.append(updates, self.lead.guard), APPEND_GRACE_S)
