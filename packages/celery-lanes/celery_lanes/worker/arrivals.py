"""The messages of a group that arrive during a run of it, and that the run may take (Group.steers).

Guarantees that a message which was taken belongs to the run, and is in no other one: it is settled, buried and replayed
with it. A later run gets what the runs before it have taken, in order and no earlier than they did. Does not guarantee
that it reaches all of them: those that are left when it ends return to their lanes, and form the next run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from celery_lanes.protocol import Command, Outcome, Store, Taken, verbs
from celery_lanes.runtime import threads

LOST = "the lease was lost"


class Arrivals:
    """Those of one run. `ask` returns the result of a command, which it may run twice. Used by the run's threads."""

    def __init__(self, message_id: str, fence: str, ask: Callable[[Command[Any]], Any]) -> None:
        self._lease = message_id, fence
        self._ask = ask
        self._lock = threads.lock()
        self._may_follow = False  # also set by the thread that listens
        self._taken = deque[tuple[int, str]]()  # place and body of those that the run has not got yet
        self._known = 0  # how many were taken, in all runs

    def begin(self, store: Store, bodies: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the bodies with which the run begins. The others were taken by runs before it. One round trip.

        Raises RedisError, and LookupError if the lease was lost.
        """
        found = store.take(*self._lease, known=0, place=None)
        if found is None:
            raise LookupError(LOST)
        self._known = len(found.places)
        first = len(bodies) - self._known
        self._taken.extend(zip(found.places, bodies[first:], strict=True))
        self._may_follow |= found.more
        return bodies[:first]

    def notify(self) -> None:
        """A message has arrived."""
        self._may_follow = True

    def look(self, store: Store) -> None:
        """A message may have arrived without a notice. Called on the thread that listens. Raises RedisError."""
        found = store.take(*self._lease, known=0, place=None)
        if found is not None and found.more:
            self.notify()

    def has_any(self, place: int) -> bool:
        """True if `take` returns a message. Sends nothing to Redis."""
        taken = [*self._taken]
        return taken[0][0] <= place if taken else self._may_follow

    @property
    def is_repeating(self) -> bool:
        """True while there are messages that runs before this one have taken, and it has not got."""
        return bool(self._taken)

    def fetch(self, place: int) -> bool:
        """True if `take` returns a message without asking Redis. False: there is none, or the next one was taken later
        in an earlier run.

        Raises what `ask` raises, and LookupError if the lease was lost.
        """
        with self._lock:
            if not self._taken and self._may_follow:
                self._take_new(place)
            return bool(self._taken) and self._taken[0][0] <= place

    def take(self, place: int) -> str | None:
        """The body of the next message; None if `fetch` returns False. Raises the same."""
        return self._taken.popleft()[1] if self.fetch(place) else None

    def _take_new(self, place: int) -> None:
        self._may_follow = False  # a notice that arrives from now on sets it again
        found: Taken | None = None
        try:
            found = self._ask(verbs.take(*self._lease, known=self._known, place=place))
        finally:
            self._may_follow |= found is None or found.more
        if found is None:
            raise LookupError(LOST)
        new = len(found.places) - self._known
        for stored in found.bodies[len(found.bodies) - new :]:
            self._taken.append((place, stored.partition(b"\n")[2].decode()))
        self._known += new

    def leave_rest(self) -> None:
        """The run ends: return the messages that it has not got to their lanes. Raises what `ask` raises, and
        LookupError if the lease was lost: then none is returned.
        """
        with self._lock:
            if self._taken:
                left = self._ask(verbs.leave(*self._lease, kept=self._known - len(self._taken)))
                if left is Outcome.LOST:
                    raise LookupError(LOST)
                self._taken.clear()
