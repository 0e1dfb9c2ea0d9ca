"""Counts of what has arrived, as one log line every LOG_EVERY_S if anything did; warns when all is dropped as seen.

Guarantees a line with the first batch after a quiet time, and one at the end. Does not interrupt a long poll to log.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chatlanes.lanes.protocol.replies import Appended
from chatlanes.poller.offset import newest_id

log = logging.getLogger("poller")

LOG_EVERY_S = 30.0

#: A batch that was appended and not confirmed comes once more. Of so many in a row each is dropped for another reason.
REPEATED_BATCHES = 3
#: By webhook as many may come again at once.
REPEATED_UPDATES = 100
#: The warning is repeated while nothing but repeated updates arrives.
WARN_EVERY_S = 600.0

SAME_AGAIN = (
    "the same updates arrive again and again (up to update_id %s) and are dropped as seen; nothing newer arrives. The "
    "server, or a proxy before it, ignores the offset of getUpdates or repeats an old answer: check BOT_API_URL"
)
STARTED_ANEW = (
    "the last %d updates (up to update_id %s) were dropped: updates with these ids were appended within 48 h. "
    "If the Bot API server started its ids anew, new updates are LOST this way: use another Redis database, "
    "or delete the keys lanes:seen:<bot id>:*, or wait 48 h"
)


@dataclass
class Progress:
    """Since the start of this process. `of_telegram`: what is repeated is worth a warning."""

    of_telegram: bool = True

    received: int = 0
    added: int = 0
    seen: int = 0
    buried: int = 0
    dropped: int = 0
    held: int = 0
    late: int = 0
    #: As last read.
    pending: int = 0

    #: Dropped as seen since the last one that was not, in so many batches, and the newest id of the last of these.
    _repeated: int = field(default=0, init=False)
    _repeated_batches: int = field(default=0, init=False)
    _repeated_id: int | None = field(default=None, init=False)
    _warned_at_s: float = field(default=float("-inf"), init=False)
    #: How many had been received at the last log line, and its time.
    _logged: int = field(default=0, init=False)
    _logged_at_s: float = field(default=float("-inf"), init=False)

    def count(self, updates: Sequence[Any], dropped: int, appended: Appended | None) -> None:
        """A batch that is durable now; `dropped` of its updates are of kinds not asked for, None is left of it then."""
        if updates:
            log.debug("batch of %d, %d dropped at the door: %s", len(updates), dropped, appended)
        self.received += len(updates)
        self.dropped += dropped
        if appended:
            self.added += appended.added
            self.seen += appended.seen
            self.buried += appended.buried
            self.held += appended.held
            self.late += appended.late
            self.pending = appended.pending
            self._watch(updates, appended)
        if time.monotonic() - self._logged_at_s >= LOG_EVERY_S:
            self.log(appended.pending if appended else None)

    def log(self, pending: int | None) -> None:
        """When anything came since the last time. `pending`: the backlog now, None when it is not known."""
        self.pending = self.pending if pending is None else pending
        if self.received == self._logged:
            return
        self._logged, self._logged_at_s = self.received, time.monotonic()
        log.info(
            "%d updates so far: %d added, %d seen before, %d buried, %d dropped at the door%s%s",
            self.received,
            self.added,
            self.seen,
            self.buried,
            self.dropped,
            "" if pending is None else f"; backlog {pending}",
            f"; {self.held} were held for others, {self.late} came late" if self.held or self.late else "",
        )

    def _watch(self, updates: Sequence[Any], appended: Appended) -> None:
        """Warns when nothing but repeated updates arrives."""
        if appended.added or appended.buried:
            self._repeated = self._repeated_batches = 0
        if not (appended.seen and self.of_telegram):
            return
        newest, last = newest_id(updates), self._repeated_id
        self._repeated += appended.seen
        self._repeated_batches += 1
        self._repeated_id = newest
        now_s = time.monotonic()
        is_news = now_s - self._warned_at_s >= WARN_EVERY_S
        if is_news and (self._repeated_batches >= REPEATED_BATCHES or self._repeated > REPEATED_UPDATES):
            self._warned_at_s = now_s
            if newest == last:
                log.warning(SAME_AGAIN, newest)
            else:
                log.warning(STARTED_ANEW, self._repeated, newest)
