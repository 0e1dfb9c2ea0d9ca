"""Fetch, append, confirm: the poller's main path, for as long as this poller leads.

Promises that no offset is sent before Redis holds everything below it durably, and that it ends only when asked to
or when Telegram refuses the token: all other trouble is waited out with the batch in hand. Only a batch that was
fetched under a lead that is lost since is dropped: Telegram gives it to the new leader (lead.py has the argument).
Does not promise that a batch is fetched once: what was not confirmed comes again, and append drops what it has seen.
"""

import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from poller.answer import ConflictError, TelegramTroubleError, TokenRefusedError
from poller.batch import Position, admitted, newest_id
from poller.lead import Lead
from poller.patience import Patience
from poller.room import Room
from poller.stop import Stop, Stopping
from poller.tally import Tally
from poller.telegram import Telegram
from tasks.intake import Intake
from tasks.lanes.commands import Guard
from tasks.lanes.errors import LeaseLost

log = logging.getLogger("poller")

#: A server without real long polling answers at once when it has nothing; the public one gives a single update to a
#: poll with the same offset within 0.5 s of the last. So two polls with the same offset are this far apart.
SAME_OFFSET_EVERY_S = 0.6

#: How long after it was asked to stop the poller still waits for the answer to its last word.
CONFIRM_GRACE_S = 1.6


@dataclass
class Poller:
    """One bot's updates, from one Bot API server into one Redis. `kinds` empty: all that come."""

    telegram: Telegram
    intake: Intake
    lead: Lead
    room: Room
    tally: Tally
    stop: Stop
    with_telegram: Patience
    with_redis: Patience
    kinds: frozenset[str]
    poll_timeout_s: int

    #: Of the lead that was taken last.
    _guard: Guard | None = field(default=None, init=False)
    _position: Position = field(default_factory=Position, init=False)
    #: The offset of the last poll, and when it began.
    _polled: tuple[int | None, float] = field(default=(None, float("-inf")), init=False)
    #: The offset of the last poll that was answered.
    _confirmed: int | None = field(default=None, init=False)

    def run(self) -> None:
        """Until asked to stop. Raises TokenRefusedError."""
        with suppress(Stopping):
            while not self.stop.is_asked:
                self._begin(self.lead.take())
                with suppress(LeaseLost):
                    self._poll_on()
        self._confirm(self._position.offset_at(time.time()))
        # Dying before this, the next poller has to wait until the lease is over.
        self.lead.resign()
        self.tally.tell()

    def _begin(self, guard: Guard) -> None:
        """A new lead knows no offset: another poller may have led in between. Raises Stopping."""
        if guard != self._guard:
            self._guard, self._position = guard, Position()
            self.room.look()

    def _poll_on(self) -> None:
        """Raises LeaseLost, with nothing in hand that Telegram has been told to forget; Stopping; TokenRefusedError."""
        while not self.stop.is_asked:
            self.room.wait()
            updates = self._fetch(self._position.offset_at(time.time()))
            # Dying here, Telegram still has the batch and sends it again. Losing the lead here, it goes to the new
            # leader, and the append changes nothing.
            self._append(updates)
            # Dying here, or losing the lead, Telegram sends the batch again too: append drops what it has seen.
            self._position = self._position.after(updates, time.time())
            # Only now may Telegram forget the batch: the next poll says so. By whomever and however late it is said,
            # all that is below this offset is in the lanes.

    def _fetch(self, offset: int | None) -> list[Any]:
        """The next batch, empty when none came. Raises Stopping in the middle of a long poll and leaves it behind.

        A batch that arrives on the connection left behind is not lost: only a higher offset would confirm it.
        """
        self._pace(offset)
        updates = self.with_telegram.until_it_works(lambda: self._poll(offset))
        self._confirmed = offset
        return updates

    def _pace(self, offset: int | None) -> None:
        last_offset, began_at_s = self._polled
        if offset == last_offset:
            self.stop.sleep(began_at_s + SAME_OFFSET_EVERY_S - time.monotonic())

    def _poll(self, offset: int | None) -> list[Any]:
        self.lead.check()
        # Frozen here, this poll is sent under a lost lead: it names what is appended, and the new leader polls again.
        self._polled = (offset, time.monotonic())
        try:
            updates = self.telegram.updates(offset, self._timeout_s())
        except ConflictError:
            self.lead.check()  # the other one may be the new leader; else it knows nothing of our Redis: waited out
            raise
        if updates and newest_id(updates) is None:
            # Appended, they would be buried again with every poll.
            raise TelegramTroubleError("no update of the batch has an id, so that no offset gets past it")
        return updates

    def _timeout_s(self) -> int:
        """Short in trouble, to learn soon that it is over. After a 409 only a long poll that nobody ends shows that."""
        trouble = self.with_telegram.trouble
        return self.poll_timeout_s if trouble is None or isinstance(trouble, ConflictError) else 0

    def _append(self, updates: list[Any]) -> None:
        """Returns when Redis holds the batch durably, however long that takes. Raises Stopping before it does.

        An append that was left behind may have taken effect or not; the batch is not confirmed and comes again.
        Raises LeaseLost when another poller leads by now; nothing was appended.
        """
        wanted = admitted(updates, self.kinds)
        appended = self.with_redis.until_it_works(lambda: self.intake.append(wanted, self._guard)) if wanted else None
        if appended:
            self.room.pending = appended.pending
        self.tally.count(len(updates), len(updates) - len(wanted), appended)

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
