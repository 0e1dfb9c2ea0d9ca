"""One message in the hands of whoever runs it, in the worker's main process or in a forked child.

Promises that `start` lets a handler begin only while the lease holds with this fence, and that `retry` and `bury`
change nothing after that. A lease that was given less than its length ago needs no look at Redis: nobody else can have
it, and the clock is the machine's (clock.py).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.lanes import clock, envelope
from tasks.lanes.answers import Outcome
from tasks.lanes.errors import LeaseLost
from tasks.lanes.handoff import DONE, GONE, STARTED

if TYPE_CHECKING:
    from tasks.lanes.install import Lanes


@dataclass(frozen=True, slots=True)
class Delivery:
    """`failed` attempts and `died` workers are those before this run."""

    lanes: Lanes
    tag: str
    deadline_s: float
    failed: int
    died: int

    @property
    def id(self) -> str:
        return self.tag.rpartition("#")[0]

    @property
    def fence(self) -> str:
        return self.tag.rpartition("#")[2]

    @property
    def attempt(self) -> int:
        """1, 2, …"""
        return self.failed + 1

    def start(self) -> None:
        """Begin. Raises LeaseLost when it was given back or its lease is over."""
        settler = self.lanes.settler
        if settler.pid == os.getpid():
            if not settler.claim(self.tag, starts=True):
                raise LeaseLost(f"{self.id} was given back before it started")
            return
        if clock.now_s() >= self.deadline_s:
            self.check()
        settler.handoff.report(STARTED, self.tag)

    def check(self) -> None:
        """Ask Redis. Raises LeaseLost when the fence is old: stop, and change nothing."""
        if not self.lanes.store.holds(self.id, self.fence):
            raise LeaseLost(f"the lease of {self.id} is over; somebody else may run it")

    def is_lost(self) -> bool:
        """Whether this process knows already that the lease is over. Asks nobody; a forked child knows nothing."""
        settler = self.lanes.settler
        return settler.pid == os.getpid() and not settler.holds(self.tag)

    def done(self) -> None:
        """Settle it, sooner than Celery's acknowledgement arrives."""
        self.lanes.settler.handoff.report(DONE, self.tag)

    def retry(self, *, delay_s: float, problem: dict[str, Any]) -> Outcome:
        """Give it back after a failure: first in its lanes, ready after `delay_s`. Its lanes wait."""
        outcome = self.lanes.store.retry(self.id, self.fence, delay_ms=round(delay_s * 1000), problem=problem)
        self._gone()
        return outcome

    def bury(self, problem: dict[str, Any]) -> Outcome:
        """Move it to the dead letters; its lanes go on."""
        outcome = self.lanes.store.bury(self.id, self.fence, problem)
        self._gone()
        return outcome

    def evict(self, *, delay_s: float | None, problem: dict[str, Any]) -> bool:
        """Take it from a handler here that does not end: retry it after `delay_s`, bury it without one.

        From now on the handler is refused, and its slot is taken until it ends. Redis is told by the lease keeper, for
        as long as it takes. False: it was not held any more, and nothing has changed.
        """
        delay_ms = None if delay_s is None else round(delay_s * 1000)
        return self.lanes.settler.evict(self.tag, delay_ms, problem)

    def _gone(self) -> None:
        """Celery's acknowledgement follows; nobody need settle what is no longer ours."""
        settler = self.lanes.settler
        if settler.pid == os.getpid():
            settler.gone(self.tag)
        else:
            settler.handoff.report(GONE, self.tag)


def delivery_of(request: Any, lanes: Lanes) -> Delivery | None:
    """The delivery behind a Celery request (`task.request`); None when it did not come through a lane."""
    told = request.get(envelope.LANE)
    if not told or request.called_directly:
        return None
    return delivery_from(told, request.properties["delivery_tag"], lanes)


def delivery_from(told: dict[str, Any], tag: str, lanes: Lanes) -> Delivery:
    """What the turn told of a message (envelope.LANE)."""
    return Delivery(lanes=lanes, tag=tag, deadline_s=told["deadline_s"], failed=told["failed"], died=told["died"])
