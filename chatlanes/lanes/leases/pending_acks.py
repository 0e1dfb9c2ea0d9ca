"""What Redis has not been told yet: settles, releases, burials, retries.

Promises that each stays known until Redis has answered it, whoever carries it: a turn or the lease keeper. A reconcile
meanwhile would take its message for one whose hand-out never arrived, and let it run again.
Whoever reads or writes here holds the settler's lock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from chatlanes.lanes.leases.books import Lease
from chatlanes.lanes.leases.timings import Times

#: Redis hears of times at most so often from a worker, seconds: what adds up meanwhile costs it nothing.
TIMES_EVERY_S = 0.1


@dataclass
class Untold:
    """A bundle of it, each kind in the order in which it came about."""

    settles: deque[Lease] = field(default_factory=deque)
    releases: deque[tuple[str, str, bool]] = field(default_factory=deque)  # with: its process died
    burials: deque[tuple[str, str, dict[str, Any]]] = field(default_factory=deque)
    retries: deque[tuple[str, str, int, dict[str, Any]]] = field(default_factory=deque)  # with: delay, ms
    times: Times = field(default_factory=Times)

    @property
    def is_urgent(self) -> bool:
        """Whether there is something in it that no turn takes along."""
        return bool(self.releases or self.burials or self.retries)

    def given_up(self) -> list[str]:
        ids = [message_id for message_id, *_ in self.releases]
        ids += [message_id for message_id, *_ in self.burials]
        return ids + [message_id for message_id, *_ in self.retries]

    def put_before(self, later: Untold) -> None:
        later.settles.extendleft(reversed(self.settles))
        later.releases.extendleft(reversed(self.releases))
        later.burials.extendleft(reversed(self.burials))
        later.retries.extendleft(reversed(self.retries))
        later.times.update(self.times)


class Outbox:
    """See the module."""

    def __init__(self) -> None:
        self.untold = Untold()
        self._telling = Untold()  # what the lease keeper sends just now
        self._in_flight: list[Lease] = []  # and the settles that a turn took along
        self._times_in_flight = Times()  # and the times
        self._next_times_s = 0.0

    def done(self) -> list[Lease]:
        """All that is done and of which Redis may not know."""
        return [*self.untold.settles, *self._telling.settles, *self._in_flight]

    def given_up(self) -> list[str]:
        """The ids of what is neither held nor done any more, and of which Redis may not know."""
        return [*self.untold.given_up(), *self._telling.given_up()]

    def everything(self) -> Untold:
        """All of which Redis may not know, whoever is about to tell it. Telling it twice is harmless."""
        telling, untold = self._telling, self.untold
        return Untold(
            settles=deque(self.done()),
            releases=telling.releases + untold.releases,
            burials=telling.burials + untold.burials,
            retries=telling.retries + untold.retries,
        )

    # -- a turn takes the settles along

    def to_turn(self) -> list[Lease]:
        self._in_flight = list(self.untold.settles)
        self.untold.settles.clear()
        return self._in_flight

    def times_to_turn(self, now_s: float) -> Times:
        """Empty when one took some a moment ago. They stay here until `turn_ended` or `turn_failed`."""
        if now_s >= self._next_times_s:
            self._next_times_s = now_s + TIMES_EVERY_S
            self._times_in_flight, self.untold.times = self.untold.times, Times()
        return self._times_in_flight

    def turn_ended(self) -> None:
        self._in_flight = []
        self._times_in_flight = Times()

    def turn_failed(self) -> None:
        """They are sent again, which is harmless; times may then be counted twice."""
        self.untold.settles.extendleft(reversed(self._in_flight))
        self.untold.times.update(self._times_in_flight)
        self.turn_ended()

    # -- the lease keeper takes everything

    def to_keeper(self) -> Untold:
        self._telling, self.untold = self.untold, Untold()
        return self._telling

    def told(self) -> None:
        self._telling = Untold()

    def put_back(self) -> None:
        self._telling.put_before(self.untold)
        self._telling = Untold()
