"""Telegram as a source of batches: polls, and confirms a batch when the next one is requested.

Guarantees that no offset is sent before the batches below it are durable. Ends only after a stop request, if Telegram
refuses the token, or if the retry limit is reached. A batch is dropped if the lead was lost after it was fetched:
Telegram sends it to the new leader (see leader_election.py).
"""

import logging
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from celery_lanes.protocol import Guard
from chatlanes.poller.bot_api import (
    BATCH,
    Offset,
    PollConflictError,
    Telegram,
    TelegramTroubleError,
    TokenRefusedError,
    has_id,
)
from chatlanes.poller.leader_election import LeaderElection
from chatlanes.poller.loop import CONFIRM_GRACE_S, Sink
from chatlanes.poller.runtime import Retry, Stop, Stopping

log = logging.getLogger("poller")

#: A server without real long polling answers at once if it has no updates; the public server returns a single update to
#: a poll with the same offset within 0.5 s after the last. So two polls with the same offset are this far apart.
SAME_OFFSET_EVERY_S = 0.6


@dataclass
class TelegramSource:
    """The updates of one bot, from one Bot API server, while this process leads. `lead`: None if the sink is not the
    lanes, which check who leads.
    """

    telegram: Telegram
    lead: LeaderElection | None
    sink: Sink
    stop: Stop
    telegram_retry: Retry
    timeout_s: int

    #: The guard of the lead to which `_position` belongs.
    _guard: Guard | None = field(default=None, init=False)
    _position: Offset = field(default_factory=Offset, init=False)
    #: The offset of the last poll, and when it began.
    _polled: tuple[int | None, float] = field(default=(None, float("-inf")), init=False)
    #: The offset of the last poll that was answered.
    _confirmed: int | None = field(default=None, init=False)

    def __iter__(self) -> Generator[list[Any], None, None]:
        """Raises LeaseLost, when no update in flight has been confirmed; Stopping; TokenRefusedError; GaveUpError."""
        self._begin()
        try:
            while not self.stop.is_requested:
                yield (updates := self._fetch(self._position.offset_at(time.time())))
                # The next batch was requested, so this one is durable, and the next poll confirms it to Telegram. All
                # updates below this offset are in the lanes, whichever poller confirms it, and however late.
                self._position = self._position.after(updates, time.time())
        finally:
            if self.stop.is_requested:
                self._confirm(self._position.offset_at(time.time()))

    def _begin(self) -> None:
        """A new lead starts without an offset, because another poller may have led in between. Raises Stopping."""
        if self.lead:
            self.lead.take()
            if self.lead.guard != self._guard:
                self._guard, self._position = self.lead.guard, Offset()
        self.sink.refresh()

    def _fetch(self, offset: int | None) -> list[Any]:
        """The next batch; empty if no updates arrived. Raises Stopping during a long poll, and abandons it.

        A batch that arrives on the abandoned connection is not lost: only a higher offset would confirm it.
        """
        limit = min(self.sink.room(), BATCH)
        self._pause(offset)
        updates = self.telegram_retry.call(lambda: self._poll(offset, limit))
        self._confirmed = offset
        return updates

    def _pause(self, offset: int | None) -> None:
        """Waits for the shortest time between two polls. Raises Stopping."""
        last_offset, began_at_s = self._polled
        self.stop.sleep(began_at_s + SAME_OFFSET_EVERY_S - time.monotonic() if offset == last_offset else 0.0)

    def _check_lead(self) -> None:
        """Raises LeaseLost."""
        if self.lead:
            self.lead.check()

    def _poll(self, offset: int | None, limit: int) -> list[Any]:
        self._check_lead()
        # A process that is frozen here sends this poll after it lost the lead. The offset covers only appended updates,
        # and the new leader polls again.
        self._polled = (offset, time.monotonic())
        try:
            updates = self.telegram.updates(offset, self._timeout_s(), limit)
        except PollConflictError:
            self._check_lead()  # the other poller may be the new leader; otherwise it does not use our Redis: retry
            raise
        if updates and not any(map(has_id, updates)):
            # If they were appended, they would be buried again with every poll.
            raise TelegramTroubleError("no update of the batch has a valid id, so the offset cannot advance")
        return updates

    def _timeout_s(self) -> int:
        """0 while Telegram fails, to notice a recovery soon. After a 409 only a completed long poll shows it."""
        trouble = self.telegram_retry.trouble
        return self.timeout_s if trouble is None or isinstance(trouble, PollConflictError) else 0

    def _confirm(self, offset: int | None) -> None:
        """Confirms the last batch, unless the last poll has confirmed it.

        If the process dies before, or the request does not arrive, the last batch arrives again, and append drops it.
        """
        if offset in (None, self._confirmed):
            return
        try:
            self.stop.run(lambda: self.telegram.confirm(offset), CONFIRM_GRACE_S)
        except (TelegramTroubleError, TokenRefusedError, Stopping) as error:
            why = str(error) or "Telegram did not answer in time"
            log.info("the last batch may arrive again and is then dropped as seen: %s", why)
