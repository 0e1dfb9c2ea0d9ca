"""One run of a leased message, in the worker's main process or in a forked child.

Guarantees that `start` lets a handler begin only while the lease holds with this fence, and that `retry`, `bury` and
`commit` change nothing after that. Before the deadline of the lease no round trip to Redis is needed: no other worker
can have the message, and all processes of the machine share the clock (clock.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chatlanes.lanes.errors import LeaseLost
from chatlanes.lanes.leases.report_channel import DELAYED, DONE, GONE, RELEASED
from chatlanes.lanes.protocol import envelope
from chatlanes.lanes.protocol.commands import Write, commit_command, read_commands
from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand
from chatlanes.lanes.protocol.replies import Outcome, Read, read_answer
from chatlanes.lanes.protocol.scripts import script
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.worker.journal import AppLanes, Journal

#: Where a request keeps its delivery.
KEPT = "lanes_delivery"


@dataclass(slots=True, eq=False)
class Delivery:
    """`failed` attempts and `died` workers are those before this run; `waited_s` is until it was handed out."""

    lanes: AppLanes
    tag: str
    deadline_s: float
    failed: int
    died: int
    waited_s: float = 0.0
    _journal: Journal | None = field(default=None, init=False, repr=False)

    @property
    def journal(self) -> Journal:
        """Of this run, and the only one: two would number the same calls twice."""
        if self._journal is None:
            with Journal.making:
                if self._journal is None:
                    self._journal = Journal(self.lanes, self.tag, self.deadline_s)
        return self._journal

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

    @property
    def age_s(self) -> float:
        """Since it was appended, or put back by a replay."""
        handed_out_s = self.deadline_s - self.lanes.in_flight.lease_s
        return self.waited_s + max(0.0, clock.now_s() - handed_out_s)

    def start(self) -> None:
        """Begin. Raises LeaseLost if it was released or its lease is over."""
        in_flight = self.lanes.in_flight
        if in_flight.reports.is_here:
            if not in_flight.claim(self.tag, starts=True):
                raise LeaseLost(f"{self.id} was released before it started")
            return
        if clock.now_s() >= self.deadline_s:
            self.check()
        if not in_flight.channel.begins(self.tag):
            raise LeaseLost(f"{self.id} waited for too long behind others; it is released")

    def check(self) -> None:
        """Ask Redis. Raises LeaseLost when the fence is old: stop, and change nothing."""
        if not self.lanes.store.holds(self.id, self.fence):
            raise self._lost()

    def is_lost(self) -> bool:
        """True if this process knows already that the lease is over. Sends nothing."""
        if self._journal is not None:
            return self._journal.is_lost
        in_flight = self.lanes.in_flight
        return in_flight.reports.is_here and not in_flight.holds(self.tag)

    @property
    def is_cut_off(self) -> bool:
        """True if this run is waiting for Redis, or was interrupted while it waited."""
        return self._journal is not None and self._journal.is_cut_off

    def done(self) -> None:
        """Settle it, sooner than Celery's acknowledgement arrives."""
        self.lanes.in_flight.reports.send(DONE, self.tag)

    def retry(self, *, delay_s: float, problem: dict[str, Any]) -> Outcome:
        """Release it after a failure: first in its lanes, ready after `delay_s`. Its lanes wait.

        As `park` while Redis is away.
        """
        self.journal.confirm()
        delay_ms = round(delay_s * 1000)
        outcome = self.journal.retry_until_done(
            lambda: self.lanes.store.retry(self.id, self.fence, delay_ms=delay_ms, problem=problem)
        )
        self._gone(delayed=True)
        return outcome

    def park(self, *, delay_s: float, kind: str = "", reason: str = "") -> Outcome:
        """Postpone it without counting an attempt: first in its lanes, ready after `delay_s`. Its lanes wait.

        `kind` is a word that it is counted by, `reason` what `lanes status` and `lanes chat` say.

        Asks again for as long as a lease while Redis is away, and raises RedisAway then. A park that happened and whose
        answer was lost is LOST.
        """
        self.journal.confirm()
        delay_ms = round(delay_s * 1000)
        outcome = self.journal.retry_until_done(
            lambda: self.lanes.store.park(self.id, self.fence, delay_ms=delay_ms, kind=kind, reason=reason)
        )
        self._gone(delayed=True)
        return outcome

    def commit(self, writes: Iterable[Write] = (), *, skipped: bool = False) -> Outcome:
        """Settle it, together with these writes to other keys: all or nothing. A crash after it runs nothing again.

        As `park` while Redis is away.
        """
        command = commit_command(self.id, self.fence, writes, skipped=skipped)
        [code] = self.journal.retry_until_done(
            lambda: self.lanes.pipelined.run(PipelinedCommand(script("commit"), command))
        )
        outcome = Outcome(code)
        self._gone()
        return outcome

    def read(self, names: Sequence[str]) -> Read:
        """The message's lane keys, and what these keys hold. As `park` while Redis is away.

        Raises LeaseLost.
        """
        asked = [PipelinedCommand(None, command) for command in read_commands(self.id, names)]
        found = read_answer(self.journal.retry_until_done(lambda: self.lanes.pipelined.run(*asked)), self.fence)
        if found is None:
            raise self._lost()
        return found

    def bury(self, problem: dict[str, Any]) -> Outcome:
        """Move it to the dead letters; its lanes go on. As `park` while Redis is away."""
        self.journal.confirm()
        outcome = self.journal.retry_until_done(lambda: self.lanes.store.bury(self.id, self.fence, problem))
        self._gone()
        return outcome

    def release(self) -> None:
        """Release it, uncounted, although it has started. The worker's main process sends that to Redis when it can.

        Raise Reject(requeue=True) afterwards: it has the same effect, counted, if this report gets lost.
        """
        if self._journal is not None:
            self._journal.lose()
        self.lanes.in_flight.reports.send(RELEASED, self.tag)

    def evict(self, *, delay_s: float | None, problem: dict[str, Any] | None) -> bool:
        """Take it from a handler here that does not end: retry it after `delay_s`, bury it without one; without a
        problem, release it uncounted.

        From now on the handler is refused, and its slot is taken until it ends. The background thread sends that to
        Redis, for as long as it takes. False: it was not in flight any more, and nothing has changed.
        """
        delay_ms = None if delay_s is None else round(delay_s * 1000)
        return self.lanes.in_flight.evict(self.tag, delay_ms, problem)

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"the lease of {self.id} is over; somebody else may run it")

    def _gone(self, *, delayed: bool = False) -> None:
        """Celery's acknowledgement follows, and must settle nothing: Redis has taken the message from this run."""
        self.lanes.in_flight.reports.send(DELAYED if delayed else GONE, self.tag)


def delivery_of(request: Any, lanes: AppLanes) -> Delivery | None:
    """The delivery behind a Celery request (`task.request`), one for each run; None when it came through no lane."""
    delivery: Delivery | None = getattr(request, KEPT, None)
    told = None if delivery or request.called_directly else getattr(request, envelope.LANE, None)
    if told:
        delivery = delivery_from(told, request.properties["delivery_tag"], lanes)
        setattr(request, KEPT, delivery)
    return delivery


def delivery_from(told: dict[str, Any], tag: str, lanes: AppLanes) -> Delivery:
    """From what the fetch put into the headers of a message (envelope.LANE)."""
    return Delivery(
        lanes=lanes,
        tag=tag,
        deadline_s=told["deadline_s"],
        failed=told["failed"],
        died=told["died"],
        waited_s=told["waited_s"],
    )
