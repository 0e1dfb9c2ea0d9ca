"""What the simulation knows of every message, and the promises that it checks at each step. It sees every answer, also
those that a worker does not get.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from celery_lanes.protocol import Limited

#: Precedes each message of a group in its stored form.
_SEPARATOR = re.compile(rb"[\x1d\x1e] ?")


class PromiseBrokenError(AssertionError):
    """The text names the message and the promise."""


@dataclass(eq=False)
class Run:
    """A lease as its worker knows it. `members`: the bodies that its handler has; the last ones may be `taken`."""

    id: str
    fence: str
    members: list[str]
    taken: int = 0
    calls: int = 0


def bodies_in(stored: bytes) -> list[str]:
    return [part.decode().strip() for part in _SEPARATOR.split(stored) if part]


@dataclass
class Promises:
    """`lanes`: of each body that is stored. `limits`: of each message, by its id. `waiting`: by lane, the places of
    those that are in the order of their appends. `holders`: by lane, the run that got its message last.
    """

    lanes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    limits: dict[str, tuple[Limited, ...]] = field(default_factory=dict)
    waiting: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    holders: dict[str, Run] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    places: int = 0

    def stored(self, body: str, lanes: tuple[str, ...], *, in_order: bool = True) -> None:
        self.lanes[body] = lanes
        self.places += 1
        for lane in lanes if in_order else ():
            self.waiting[lane][body] = self.places

    def ended(self, body: str) -> None:
        for lane in self.lanes.get(body, ()):
            self.waiting[lane].pop(body, None)

    def forgotten(self, body: str) -> None:
        """It was dropped, or its timer was cancelled or replaced."""
        self.ended(body)
        self.lanes.pop(body, None)

    def handed_out(self, run: Run, buried: Callable[[], Iterable[str]]) -> None:
        """`buried`: the bodies of the dead letters."""
        for body in run.members:
            if body in self.settled:
                raise PromiseBrokenError(f"{body} is handed out after it was settled")
        for lane in self.lanes_of(run):
            self.holders[lane] = run
            places = self.waiting[lane]
            mine = min((places[body] for body in run.members if body in places), default=0)
            earlier = {body for body, place in places.items() if place < mine} - {*run.members}
            if earlier and (earlier := earlier - {*buried()}):
                raise PromiseBrokenError(f"{run.members} is handed out before {earlier} in {lane}")

    def run_together(self, ids: Iterable[str]) -> None:
        """These messages are leased, and not stopped."""
        running = Counter(limit for id_ in ids for limit in self.limits.get(id_, ()))
        for limit, count in running.items():
            if count > limit.concurrency:
                raise PromiseBrokenError(f"{count} messages of {limit} run, and {limit.concurrency} may")

    def had_effect(self, run: Run) -> None:
        """A call with the fence of this run was accepted."""
        for lane in self.lanes_of(run):
            if self.holders.get(lane) is not run:
                raise PromiseBrokenError(f"{run.members} has an effect after a later run in {lane}")

    def was_settled(self, run: Run) -> None:
        self.had_effect(run)
        for body in run.members:
            if body in self.settled:
                raise PromiseBrokenError(f"{body} is settled twice")
            self.settled.add(body)
            self.ended(body)

    def lanes_of(self, run: Run) -> tuple[str, ...]:
        return self.lanes.get(run.members[0], ())

    def check_all_settled(self) -> None:
        if left := sorted(set(self.lanes) - self.settled):
            raise PromiseBrokenError(f"never settled: {left}")
