"""Counts updates, logs the counts every LOG_EVERY_S if any arrived, and warns if all are dropped as seen.

Guarantees a log line with the first batch after an idle time, and one at the end. Does not interrupt a long poll to
log.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from celery_lanes.protocol import Appended
from chatlanes.poller.bot_api import newest_id

log = logging.getLogger("poller")

LOG_EVERY_S = 30.0

#: A batch that was appended but not confirmed arrives once more. This many repeated batches have another cause.
REPEATED_BATCHES = 3
#: A webhook may repeat this many updates at once.
REPEATED_UPDATES = 100
#: The warning is repeated while nothing but repeated updates arrives.
WARN_EVERY_S = 600.0

REPEATED_ANSWER = (
    "the same updates keep arriving (up to update_id %s) and are dropped as seen; nothing newer arrives. The "
    "server, or a proxy in front of it, ignores the offset of getUpdates or repeats an old answer: check BOT_API_URL"
)
RESTARTED_IDS = (
    "the last %d updates (up to update_id %s) were dropped: updates with these ids were appended within 48 h. "
    "If the Bot API server restarted its ids, new updates are LOST this way: use another Redis database, "
    "or delete the keys lanes:seen:<bot id>:*, or wait 48 h"
)


@dataclass
class Progress:
    """The counts since the start of this process. `of_telegram`: repeated updates cause a warning."""

    of_telegram: bool = True

    received: int = 0
    added: int = 0
    seen: int = 0
    buried: int = 0
    dropped: int = 0
    held: int = 0
    late: int = 0
    over_rate: int = 0
    #: The backlog when it was last read.
    pending: int = 0

    #: Updates dropped as seen since the last new one, the number of their batches, and the newest id of the last batch.
    _repeated: int = field(default=0, init=False)
    _repeated_batches: int = field(default=0, init=False)
    _repeated_id: int | None = field(default=None, init=False)
    _warned_at_s: float = field(default=float("-inf"), init=False)
    #: The value of `received` at the last log line, and its time.
    _logged: int = field(default=0, init=False)
    _logged_at_s: float = field(default=float("-inf"), init=False)

    def count(self, updates: Sequence[Any], dropped: int, appended: Appended | None) -> None:
        """Counts a durable batch. `dropped`: how many updates were filtered out. `appended`: None if all were."""
        if updates:
            log.debug("batch of %d, %d filtered out: %s", len(updates), dropped, appended)
        self.received += len(updates)
        self.dropped += dropped
        if appended:
            self.added += appended.added
            self.seen += appended.seen
            self.buried += appended.buried
            self.held += appended.held
            self.late += appended.late
            self.over_rate += appended.over_rate
            self.pending = appended.pending
            self._watch(updates, appended)
        if time.monotonic() - self._logged_at_s >= LOG_EVERY_S:
            self.log(appended.pending if appended else None)

    def log(self, pending: int | None) -> None:
        """Logs the counts if any update arrived since the last time. `pending`: the backlog now; None: unknown."""
        self.pending = self.pending if pending is None else pending
        if self.received == self._logged:
            return
        self._logged, self._logged_at_s = self.received, time.monotonic()
        log.info(
            "%d updates so far: %d added, %d seen before, %d buried, %d filtered out%s%s%s",
            self.received,
            self.added,
            self.seen,
            self.buried,
            self.dropped,
            "" if pending is None else f"; backlog {pending}",
            f"; {self.held} were held for earlier ones, {self.late} arrived late" if self.held or self.late else "",
            f"; {self.over_rate} over USER_RATE were dropped" if self.over_rate else "",
        )

    def _watch(self, updates: Sequence[Any], appended: Appended) -> None:
        """Warns if only repeated updates arrive."""
        if appended.added or appended.buried or appended.over_rate:
            self._repeated = self._repeated_batches = 0
        if not (appended.seen and self.of_telegram):
            return
        newest, last = newest_id(updates), self._repeated_id
        self._repeated += appended.seen
        self._repeated_batches += 1
        self._repeated_id = newest
        now_s = time.monotonic()
        may_warn = now_s - self._warned_at_s >= WARN_EVERY_S
        if may_warn and (self._repeated_batches >= REPEATED_BATCHES or self._repeated > REPEATED_UPDATES):
            self._warned_at_s = now_s
            if newest == last:
                log.warning(REPEATED_ANSWER, newest)
            else:
                log.warning(RESTARTED_IDS, self._repeated, newest)
