"""Wakes the two threads that send acks: the consumer's event loop and the background thread.

Guarantees that a free slot or a queued ack wakes one of them, and that the loop is woken once for all events before its
next iteration.
"""

from __future__ import annotations

from math import inf

from chatlanes.lanes.leases.report_channel import ReportChannel
from chatlanes.lanes.runtime import clock, os_threads

#: While a fetch is in flight the loop is not woken, because the answer, usually within milliseconds, does that. After
#: this time the loop is woken all the same.
ANSWERED_WITHIN_S = 0.1


class Wakeups:
    """The wake-ups of one in-flight table. `background` is the signal that the background thread waits for."""

    def __init__(self, channel: ReportChannel) -> None:
        self.background = os_threads.Signal()
        self.last_fetch_s = 0.0  # clock.now_s; the last fetch carries all settles queued by then
        self._channel = channel
        self._consumers = 0
        self._is_background_idle = False  # the background thread waits for longer than a busy tick
        self._is_loop_woken = False
        self._answer_until_s = 0.0  # until then the answer of a fetch is expected
        self._is_anything_delayed = False
        #: When the next group or timer is due (clock.now_s): a sweep makes it ready, unless a fetch does that before.
        self.next_due_s = inf

    # -- the event loop of the consumers

    @property
    def consumers(self) -> int:
        """The number of channels that fetch. If there is none, the background thread settles."""
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
        """Wake the loop, or the background thread if no channel fetches."""
        if not self._consumers:
            self.background.set()
        elif not self._is_loop_woken and clock.now_s() >= self._answer_until_s:
            self._is_loop_woken = True
            self._channel.wake()

    def loop_was_woken(self) -> None:
        """Called when the wake-up was read: the next event wakes the loop again."""
        self._is_loop_woken = False

    # -- the background thread

    @property
    def is_background_idle(self) -> bool:
        return self._is_background_idle

    def set_background_idle(self, is_idle: bool) -> None:
        """Called before the background thread waits; `is_idle`: for longer than a busy tick."""
        self._is_background_idle = is_idle

    def retry_is_delayed(self) -> None:
        """A message was delayed, and may become due before the next sweep."""
        self._is_anything_delayed = True
        self.background.set()

    def next_is_due(self, within_s: float | None) -> None:
        """Called after each fetch: the next group or timer is due then; None: there is none."""
        before_s, self.next_due_s = self.next_due_s, inf if within_s is None else clock.now_s() + within_s
        if self.next_due_s < before_s:
            self.background.set()

    def take_delayed(self) -> bool:
        """True if a message was delayed since the last call."""
        was_delayed, self._is_anything_delayed = self._is_anything_delayed, False
        return was_delayed
