"""What has come so far: one log line every now and then, when there is news.

Promises a line with the first batch after a quiet time, and one at the end. Does not interrupt a long poll to tell.
"""

import logging
import time
from dataclasses import dataclass, field

from tasks.lanes.answers import Appended

log = logging.getLogger("poller")

TELL_EVERY_S = 30.0


@dataclass
class Tally:
    """Since the start of this process."""

    received: int = 0
    added: int = 0
    seen: int = 0
    buried: int = 0
    dropped: int = 0
    held: int = 0
    late: int = 0
    pending: int = 0

    #: How many had been received when it was last told, and when that was.
    _told: int = field(default=0, init=False)
    _told_at_s: float = field(default=float("-inf"), init=False)

    def count(self, received: int, dropped: int, appended: Appended | None) -> None:
        """A batch that is durable now; `dropped` of its updates are of kinds not asked for, None is left of it then."""
        if received:
            log.debug("batch of %d, %d dropped at the door: %s", received, dropped, appended)
        self.received += received
        self.dropped += dropped
        if appended:
            self.added += appended.added
            self.seen += appended.seen
            self.buried += appended.buried
            self.held += appended.held
            self.late += appended.late
            self.pending = appended.pending
        if time.monotonic() - self._told_at_s >= TELL_EVERY_S:
            self.tell()

    def tell(self) -> None:
        """When anything came since the last time."""
        if self.received == self._told:
            return
        self._told, self._told_at_s = self.received, time.monotonic()
        log.info(
            "%d updates so far: %d added, %d seen before, %d buried, %d dropped at the door; backlog %d%s",
            self.received,
            self.added,
            self.seen,
            self.buried,
            self.dropped,
            self.pending,
            f"; {self.held} were held for others, {self.late} came late" if self.held or self.late else "",
        )
