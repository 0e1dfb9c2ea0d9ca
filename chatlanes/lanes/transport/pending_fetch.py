"""One fetch of a channel with the script turn.lua: sent, in flight, answered, or lost.

Guarantees that after a lost answer the settles are sent again, and that the messages of that answer, which Redis has
leased to this worker, are released before the next fetch. If the worker dies first, they wait until the leases expire.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from kombu.log import get_logger
from redis.exceptions import NoScriptError

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.protocol.commands import fetch_command
from chatlanes.lanes.protocol.keys import group_of
from chatlanes.lanes.protocol.replies import Fetched, fetch_answer
from chatlanes.lanes.protocol.scripts import script
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.transport.connection import PolledConnection

logger = get_logger(__name__)

T = TypeVar("T")

#: A larger answer would block Redis for its other clients.
MAX_PER_FETCH = 200


class PendingFetch(PolledConnection):
    """The connection for fetches. `asked_s` (clock.now_s) is when the last one was sent."""

    def __init__(self, kind: str, channel: Any) -> None:
        super().__init__(kind)
        self._channel = channel
        self._sent = 0
        self._has_capacity = False
        self.asked_s = 0.0

    @property
    def _in_flight(self) -> InFlight:
        in_flight: InFlight = self._channel.in_flight
        return in_flight

    def ask(self, capacity: int) -> None:
        """Send the settles, and fetch up to this many messages."""
        in_flight = self._in_flight
        self._reconcile()
        self._sent += 1
        self._has_capacity = capacity > 0
        queues = self._channel.queues_to_read()
        command = fetch_command(
            [queue for some in queues for queue in rotated(some, self._sent)],
            holder=in_flight.holder,
            lease_ms=in_flight.lease_ms,
            room=min(capacity, MAX_PER_FETCH),
            holding=in_flight.leased(),
            settles=in_flight.start_fetch(),
            max_deaths=in_flight.max_deaths,
            first=len(queues.first),
            last=len(queues.last),
            last_room=in_flight.room_for_last(queues.last),
            times=in_flight.pending_acks.times_to_fetch(),
        )
        self.asked_s = clock.now_s()
        try:
            self.send(self._channel, command)
        except BaseException:
            self.lost()
            raise

    def answer(self) -> Fetched | None:
        """The answer. None: Redis did not have the script; it is loaded now, and the caller fetches again."""
        try:
            fetched = fetch_answer(self.read())
        except NoScriptError:  # nothing ran
            self._in_flight.fail_fetch(may_have_run=False)
            self._channel.store.client.script_load(script("turn").source)
            return None
        except BaseException:
            self._in_flight.fail_fetch()
            self.drop(self._channel)
            raise
        if not self._has_capacity:  # the script did not check for suspects
            fetched = replace(fetched, suspects=None)
        if fetched.lost:
            logger.warning("lanes: settled too late; other workers may run them again: %s", ", ".join(fetched.lost))
        return fetched

    def last_answer(self) -> Fetched | None:
        """The pending answer, for a caller that will not fetch again. None: it was lost."""
        fetched = None
        try:
            if self.has_answer(within_s=2.0):
                fetched = self.answer()
        except Exception as error:
            logger.debug("lanes: the last fetch was lost: %s", error)
        if fetched is None:
            self.lost()
            self.drop(self._channel)
        return fetched

    def lost(self) -> None:
        """No answer will arrive, but the script may have run."""
        self.sent_s = None
        self._in_flight.fail_fetch()

    def _reconcile(self) -> None:
        in_flight = self._in_flight
        if not in_flight.must_reconcile:
            return
        # No fetch is in flight, so no message is about to arrive that is not in the table yet.
        released = self._channel.store.reconcile(in_flight.holder, in_flight.leased_ids())
        in_flight.reconciled()
        if released:
            logger.info("lanes: released %d messages that were leased to this worker but never arrived", released)


def rotated(queues: list[str], number: int) -> list[str]:
    """The queues in a different order for each `number`: each group is first equally often, and each queue within its
    group.
    """
    groups: dict[str, list[str]] = {}
    for queue in queues:
        groups.setdefault(group_of(queue), []).append(queue)
    round_, first = divmod(number, max(len(groups), 1))
    ordered = _starting_at(first, list(groups.values()))
    return [queue for group in ordered for queue in _starting_at(round_ % len(group), group)]


def _starting_at(first: int, items: list[T]) -> list[T]:
    return items[first:] + items[:first]
