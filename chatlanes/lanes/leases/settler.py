"""Former names of the in-flight table, until all callers have the new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.leases.message import Lease, LeasedMessage
from chatlanes.lanes.leases.prefetch import Capacity
from chatlanes.lanes.leases.report_channel import DELAYED, GONE, ReportChannel
from chatlanes.lanes.protocol.replies import Leased


class Settler(InFlight):
    def __init__(self, *, handoff: ReportChannel | None = None, **options: Any) -> None:
        super().__init__(channel=handoff, **options)

    @property
    def room(self) -> Capacity:
        return self.capacity

    @property
    def handoff(self) -> ReportChannel:
        return self.channel

    @property
    def is_here(self) -> bool:
        return self.reports.is_here

    @property
    def hear(self) -> Callable[[], None]:
        return self.reports.poll

    @hear.setter
    def hear(self, poll: Callable[[], None]) -> None:
        self.reports.poll_with(poll)

    def read_handoff(self) -> None:
        self.reports.read()

    def read_children(self) -> None:
        self.reports.read_children()

    def report(self, what: str, tag: str) -> None:
        self.reports.send(what, tag)

    def gone(self, tag: str, *, delayed: bool = False) -> None:
        self.reports.send(DELAYED if delayed else GONE, tag)

    def plan_turn(self) -> list[Lease]:
        return self.start_fetch()

    def turn_ended(self, leased: list[Leased], asked_s: float, **known: Any) -> list[LeasedMessage]:
        return self.finish_fetch(leased, asked_s, **known)

    def give_back(self, tag: str, *, died: bool = False) -> bool:
        return self.release(tag, died=died)

    def give_back_unclaimed(self, queue: str | None = None) -> int:
        return self.release_unclaimed(queue)

    def give_back_dropped(self, ids: set[str]) -> None:
        self.release_ids(ids)

    def give_back_all(self) -> None:
        self.release_all()
