"""Telegram as a source of batches: polls, and confirms a batch when asked for the next one.

Guarantees that no offset is sent before the batches below it are durable. Ends only when asked to, when Telegram
refuses the token, or when the retries are given up. A batch that was fetched under a lead that was lost since is
dropped: Telegram gives it to the new leader (leader_election.py has the argument).
"""

import logging
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from chatlanes.lanes.protocol.commands import Guard
from chatlanes.poller.bot_api import BATCH, Telegram
from chatlanes.poller.offset import Offset, has_id
from chatlanes.poller.polling.backpressure import Backpressure, NoBackpressure
from chatlanes.poller.polling.leader_election import LeaderElection, SoleLeader
from chatlanes.poller.polling.pacing import Pace
from chatlanes.poller.responses import PollConflictError, TelegramTroubleError, TokenRefusedError
from chatlanes.poller.runtime import Retry, Stop, Stopping

log = logging.getLogger("poller")

#: A server without real long polling answers at once when it has nothing; the public one gives a single update to a
#: poll with the same offset within 0.5 s of the last. So two polls with the same offset are this far apart.
SAME_OFFSET_EVERY_S = 0.6

#: How long after it was asked to stop the poller still waits for the answer to its last word.
CONFIRM_GRACE_S = 1.1


@dataclass
class TelegramSource:
    """One bot's updates, from one Bot API server, for as long as this process leads."""

    telegram: Telegram
    lead: LeaderElection | SoleLeader
    backpressure: Backpressure | NoBackpressure
    stop: Stop
    telegram_retry: Retry
    timeout_s: int
    pace: Pace

    #: Of the lead under which `_position` was reached.
    _guard: Guard | None = field(default=None, init=False)
    _position: Offset = field(default_factory=Offset, init=False)
    #: The offset of the last poll, and when it began.
    _polled: tuple[int | None, float] = field(default=(None, float("-inf")), init=False)
    #: The offset of the last poll that was answered.
    _confirmed: int | None = field(default=None, init=False)

    def __iter__(self) -> Generator[list[Any], None, None]:
        """Raises LeaseLost, with nothing in hand that Telegram has been told to forget; Stopping; TokenRefusedError;
        GaveUpError.
        """
        self._begin()
        try:
            while not self.stop.is_requested:
                yield (updates := self._fetch(self._position.offset_at(time.time())))
                # Asked for more: the batch is durable. Only now may Telegram forget it, and the next poll says so. By
                # whomever and however late it is said, all that is below this offset is in the lanes.
                self._position = self._position.after(updates, time.time())
        finally:
            if self.stop.is_requested:
                self._confirm(self._position.offset_at(time.time()))

    def _begin(self) -> None:
        """A new lead knows no offset: another poller may have led in between. Raises Stopping."""
        if self.lead.guard != self._guard:
            self._guard, self._position = self.lead.guard, Offset()
        self.backpressure.look()

    def _fetch(self, offset: int | None) -> list[Any]:
        """The next batch, empty when none came. Raises Stopping in the middle of a long poll and leaves it behind.

        A batch that arrives on the connection left behind is not lost: only a higher offset would confirm it.
        """
        limit = min(self.backpressure.wait(), BATCH)
        began_s = time.monotonic()
        self._rest(offset)
        updates = self.telegram_retry.call(lambda: self._poll(offset, limit))
        self._confirmed = offset
        self.pace = self.pace.after(len(updates), time.monotonic() - began_s, full=len(updates) >= limit)
        return updates

    def _rest(self, offset: int | None) -> None:
        """Wait before a poll: for the least time between two, or for the pace. Raises Stopping."""
        last_offset, began_at_s = self._polled
        least_s = began_at_s + SAME_OFFSET_EVERY_S - time.monotonic() if offset == last_offset else 0.0
        self.stop.sleep(max(least_s, self.pace.wait_s))

    def _poll(self, offset: int | None, limit: int) -> list[Any]:
        self.lead.check()
        # Frozen here, this poll is sent under a lost lead: it names what is appended, and the new leader polls again.
        self._polled = (offset, time.monotonic())
        try:
            updates = self.telegram.updates(offset, self._timeout_s(), limit)
        except PollConflictError:
            self.lead.check()  # the other one may be the new leader; else it knows nothing of our Redis: waited out
            raise
        if updates and not any(map(has_id, updates)):
            # Appended, they would be buried again with every poll.
            raise TelegramTroubleError("no update of the batch has an id, so that no offset gets past it")
        return updates

    def _timeout_s(self) -> int:
        """Short in trouble, to learn soon that it is over. After a 409 only a long poll that nobody ends shows that."""
        trouble = self.telegram_retry.trouble
        return self.timeout_s if trouble is None or isinstance(trouble, PollConflictError) else 0

    def _confirm(self, offset: int | None) -> None:
        """The last word to Telegram, when the answer to the last poll did not already stand for it.

        Dying before it arrives, or when it does not: the last batch comes again, and append drops what it has seen.
        """
        if offset in (None, self._confirmed):
            return
        try:
            self.stop.run(lambda: self.telegram.confirm(offset), CONFIRM_GRACE_S)
        except (TelegramTroubleError, TokenRefusedError, Stopping) as error:
            log.info("the last batch may come again and would be dropped as seen: %s", error or "Telegram is slow")
