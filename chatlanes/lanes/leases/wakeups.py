"""Wakes the two threads that send acks: the consumer's event loop and the background thread.

Guarantees that a free slot or a queued ack wakes one of them, and that one wake-up of the loop serves all that happens
before it goes round.
"""

from __future__ import annotations

from chatlanes.lanes.leases.report_channel import ReportChannel
from chatlanes.lanes.runtime import clock, os_threads

#: A fetch is usually answered within milliseconds, and its answer makes the loop go round. A slower one must not keep
#: the loop from being woken.
ANSWERED_WITHIN_S = 0.1


class Wakeups:
    """Of one in-flight table. `background` is the signal that the background thread waits for."""

    def __init__(self, channel: ReportChannel) -> None:
        self.background = os_threads.Signal()
        self.last_fetch_s = 0.0  # the last fetch carries all that was done by then (clock.now_s)
        self._channel = channel
        self._consumers = 0
        self._is_resting = False  # the background thread waits for longer than a moment
        self._is_loop_woken = False
        self._answer_until_s = 0.0  # a fetch is in flight, and should be answered by then
        self._is_anything_delayed = False

    # -- the consumers' loop

    @property
    def consumers(self) -> int:
        """Channels that fetch. Without one the background thread settles."""
        return self._consumers

    def add_consumer(self) -> None:
        self._consumers += 1

    def remove_consumer(self) -> None:
        self._consumers -= 1
        self.background.set()

    def fetch_started(self) -> None:
        self.last_fetch_s = clock.now_s()
        self._answer_until_s = self.last_fetch_s + ANSWERED_WITHIN_S

    def fetch_ended(self) -> None:
        self._answer_until_s = 0.0

    def slot_is_free(self) -> None:
        """The loop must go round, or without one the background thread."""
        if not self._consumers:
            self.background.set()
        elif not self._is_loop_woken and clock.now_s() >= self._answer_until_s:
            self._is_loop_woken = True
            self._channel.wake()

    def loop_was_woken(self) -> None:
        """The wake-up has been read: the next event wakes the loop again."""
        self._is_loop_woken = False

    # -- the background thread

    @property
    def is_background_resting(self) -> bool:
        return self._is_resting

    def rest(self, is_resting: bool) -> None:
        """The background thread is about to wait, and `is_resting` if for longer than a moment."""
        self._is_resting = is_resting

    def retry_is_delayed(self) -> None:
        """A message may become due before the next sweep."""
        self._is_anything_delayed = True
        self.background.set()

    def take_delayed(self) -> bool:
        """True if a message was delayed since the last call."""
        was_delayed, self._is_anything_delayed = self._is_anything_delayed, False
        return was_delayed
