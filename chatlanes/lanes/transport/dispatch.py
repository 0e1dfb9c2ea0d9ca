"""Delivers the messages of a fetch to the consumers of their queues; in a Celery worker, to its pool.

Guarantees that all of them are in the in-flight table before any is delivered, and that a message that cannot be
delivered is released, or buried if no worker could process it.
"""

from __future__ import annotations

from typing import Any

from kombu.log import get_logger

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.leases.message import tag_of
from chatlanes.lanes.protocol import envelope
from chatlanes.lanes.protocol.envelope import about
from chatlanes.lanes.protocol.replies import Fetched, Leased

logger = get_logger(__name__)


class Dispatcher:
    """The dispatcher of one channel. `asked_s` (clock.now_s) is when the fetch was sent, and when its leases start."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    @property
    def _in_flight(self) -> InFlight:
        in_flight: InFlight = self._channel.in_flight
        return in_flight

    def deliver(self, fetched: Fetched, asked_s: float) -> None:
        self._in_flight.finish_fetch(fetched.leased, asked_s, suspects_wait=fetched.suspects, more=fetched.more)
        self._in_flight.wakeups.next_is_due(fetched.due_s)
        deadline_s = asked_s + self._in_flight.lease_s
        try:
            for leased in fetched.leased:
                self._deliver_one(leased, deadline_s)
        except BaseException:  # a shutdown, or a connection error in the callback
            self._in_flight.release_unclaimed()
            raise

    def release(self, fetched: Fetched, asked_s: float) -> None:
        """Release the messages of a fetch that was answered after the channel stopped consuming."""
        self._in_flight.finish_fetch(fetched.leased, asked_s, suspects_wait=fetched.suspects)
        for leased in fetched.leased:
            self._in_flight.release(tag_of(leased.id, leased.fence))

    def _deliver_one(self, leased: Leased, deadline_s: float) -> None:
        tag = tag_of(leased.id, leased.fence)
        callback = self._channel.connection._callbacks.get(leased.queue)
        if callback is None:
            self._in_flight.release(tag)
            return
        try:
            message = unpack(leased, deadline_s)
        except (ValueError, KeyError, TypeError) as error:
            logger.error("lanes: buried %s, which is not a message: %s", leased.id, error, extra=about(leased.id))
            self._in_flight.bury(tag, {"type": "NoMessage", "message": f"it cannot be unpacked: {error}"})
            return
        if self._in_flight.capacity.pool is None:
            self._in_flight.claim(tag, starts=True)
            callback(message)
            return
        try:
            callback(message)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            # Celery failed on its content: it would fail on every other worker too.
            fields = about(leased.id)
            logger.error(
                "lanes: buried %s, which Celery cannot process: %s", leased.id, error, exc_info=True, extra=fields
            )
            self._in_flight.bury(tag, {"type": type(error).__name__, "message": f"Celery cannot process it: {error}"})


def unpack(leased: Leased, deadline_s: float) -> dict[str, Any]:
    """The message in kombu's form, with the header for its delivery (delivery.py). Raises ValueError, KeyError or
    TypeError if it is not a message.
    """
    lane: dict[str, Any] = {
        "deadline_s": deadline_s,
        "failed": leased.failed,
        "died": leased.died,
        "waited_s": leased.waited_s,
        "replayed_s": leased.replayed_s,
    }
    stored, *collected = envelope.split(leased.stored)
    if envelope.is_interruptible(leased.stored):
        lane |= {"interruptible": True, "interrupted": leased.interrupted}
    if collected:
        lane["bodies"] = [each.partition(b"\n")[2].decode() for each in collected]
    return envelope.unpack(
        stored, message_id=leased.id, queue=leased.queue, tag=tag_of(leased.id, leased.fence), lane=lane
    )
