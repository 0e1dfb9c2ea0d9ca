"""The journal of one run: the external calls that it begins, and their outcomes, for reruns.

Guarantees that a call which was begun may be made until `is_sure` is False, because no other worker can have the
message; that it costs one awaited round trip, at the beginning; and that a message is released with all outcomes noted.
Does not guarantee that an outcome is noted if this process dies before Redis has read it: then the call is uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from threading import Lock
from typing import Any, Protocol, TypeVar

from redis.exceptions import RedisError, ResponseError

from chatlanes.lanes.errors import LeaseLost
from chatlanes.lanes.leases.in_flight import InFlight
from chatlanes.lanes.protocol.commands import begin_command, end_command
from chatlanes.lanes.protocol.pipelined_pool import Fate, PipelinedCommand, PipelinedPool, UnawaitedCommand
from chatlanes.lanes.protocol.replies import Begun, Kind, Noted, begin_answer
from chatlanes.lanes.protocol.scripts import script
from chatlanes.lanes.protocol.store import Store
from chatlanes.lanes.runtime import clock
from chatlanes.lanes.runtime.retry import Retries
from chatlanes.lanes.worker.stopping import is_stopping

T = TypeVar("T")


class AppLanes(Protocol):
    """What a run needs of its app's lanes (install.py): those of this process."""

    @property
    def in_flight(self) -> InFlight: ...

    @property
    def store(self) -> Store: ...

    @property
    def pipelined(self) -> PipelinedPool: ...


class Journal:
    """Threads and greenlets of one handler may share it. A run that makes no call costs nothing."""

    #: One for all of this process: it is held for moments, and for gevent making one takes longer than the rest.
    _lock = Lock()
    making = Lock()

    def __init__(self, lanes: AppLanes, tag: str, sure_until_s: float) -> None:
        self.id, _, fence = tag.rpartition("#")
        self._lanes = lanes
        self._tag = tag
        self._lease = self.id, fence
        self._is_lost = False
        self._sure_until_s = sure_until_s  # clock.now_s
        self._numbers: dict[str, count[int]] = {}
        self._ends: list[UnawaitedCommand] = []  # those that Redis has perhaps not got
        self._retries = Retries(lanes.in_flight.lease_s, self._redis_answers, is_stopping)

    def position(self, series: str = "") -> str:
        """Of the next call. Calls that run beside each other get theirs in the order in which they ask."""
        with self._lock:
            return f"{series}{next(self._numbers.setdefault(series, count(1)))}"

    def begin(self, position: str, what: str, along: Sequence[PipelinedCommand] = ()) -> tuple[Begun, list[Any]]:
        """Note that a call is about to be made: `what` is `<name>:<more>`. Gives besides the answers to what is asked
        along.

        The same call may be begun again as long as it was not made. Waits up to a
        lease for a Redis that is away. Raises LeaseLost and RedisAway.
        """
        self._refuse_if_lost(what)
        asked_s = clock.now_s()
        begin = PipelinedCommand(
            script("begin"), begin_command(*self._lease, lease_ms=self._lease_ms, position=position, what=what)
        )
        answer, *answers = self._ask_after_the_ends(begin, *along)
        begun = begin_answer(answer)
        if begun.noted is Noted.LOST:
            self.lose()
        elif self.is_lost:  # released meanwhile, because Redis was away: the call is not made
            self._pipelined.send_unawaited(self._end_of(position, what, Kind.UNDONE))
        self._refuse_if_lost(what)
        self._sure_from(asked_s)
        return begun, answers

    def end(self, position: str, what: str, kind: Kind, outcome: bytes = b"") -> None:
        """Note what became of a call. Waits for nothing, but to undo."""
        asked = self._end_of(position, what, kind, outcome)
        if kind is Kind.UNDONE:  # what comes next may begin it again, and must not be overtaken
            self._note(UnawaitedCommand(asked, Fate.UNKNOWN))
            with suppress(RedisError):
                self.confirm()
        else:
            self._note(self._pipelined.send_unawaited(asked))

    def confirm(self) -> None:
        """Wait until Redis has every outcome: before the message is released. Raises RedisAway."""
        self._ask_after_the_ends(also_under_way=True)

    def lose(self) -> None:
        """The run is over: it makes no call any more, whatever goes on of it."""
        self._is_lost = True

    @property
    def is_lost(self) -> bool:
        """Whether this process knows already that the lease is over. Asks nobody."""
        in_flight = self._lanes.in_flight
        if in_flight.reports.is_here and not in_flight.holds(self._tag):
            self._is_lost = True
        return self._is_lost

    def is_sure(self) -> bool:
        """Whether nobody else can have the message now. Asks nobody."""
        return not self.is_lost and clock.now_s() < self._sure_until_s

    def ensure(self, what: str) -> None:
        """Ask Redis when that is not sure, which extends the lease.

        Raises LeaseLost: `what` is not to be done; and RedisAway.
        """
        self._refuse_if_lost(what)
        if self.is_sure():
            return
        asked_s = clock.now_s()
        self._is_lost = bool(self.retry_until_done(lambda: self._lanes.store.renew([self._lease], self._lease_ms)))
        self._refuse_if_lost(what)
        self._sure_from(asked_s)

    def ask(self, *asked: PipelinedCommand) -> list[Any]:
        """The answers. A Redis that is away is waited for as long as a lease. Raises RedisAway."""
        return self.retry_until_done(lambda: self._pipelined.ask(*asked))

    def retry_until_done(self, step: Callable[[], T]) -> T:
        """The result of a step that may run twice. Waits up to a lease for a Redis that is away. Raises RedisAway."""
        return self._retries.until_done(step)

    @property
    def is_cut_off(self) -> bool:
        """Whether this run waits for a Redis that is away, or was interrupted while it did."""
        return self._retries.is_cut_off

    # -- inside

    def _end_of(self, position: str, what: str, kind: Kind, outcome: bytes = b"") -> PipelinedCommand:
        return PipelinedCommand(
            script("end"), end_command(*self._lease, position=position, what=what, kind=kind, outcome=outcome)
        )

    def _redis_answers(self) -> bool:
        try:
            self._pipelined.run(PipelinedCommand(None, ["PING"]))
        except RedisError:
            return False
        return True

    @property
    def _pipelined(self) -> PipelinedPool:
        return self._lanes.pipelined

    @property
    def _lease_ms(self) -> int:
        return self._lanes.in_flight.lease_ms

    def _sure_from(self, asked_s: float) -> None:
        self._sure_until_s = max(self._sure_until_s, asked_s + self._lanes.in_flight.lease_s)

    def _refuse_if_lost(self, what: str) -> None:
        if self.is_lost:
            raise LeaseLost(f"the lease of {self.id} is over; {what.partition(':')[0]} was not called")

    def _note(self, told: UnawaitedCommand) -> None:
        with self._lock:
            self._ends = [each for each in self._ends if each.fate is not Fate.DONE]
            self._ends.append(told)

    def _ask_after_the_ends(self, *asked: PipelinedCommand, also_under_way: bool = False) -> list[Any]:
        """The answers; what is asked after the first may be answered with an error. What was told and perhaps never
        arrived goes before it.
        """
        with self._lock:
            again = [
                told
                for told in self._ends
                if told.fate is Fate.UNKNOWN or (also_under_way and told.fate is Fate.UNDER_WAY)
            ]
        if not asked and not again:
            return []
        ours = len(again) + min(len(asked), 1)

        def step() -> list[Any]:
            answers = self._pipelined.ask(*(told.asked for told in again), *asked)
            for answer in answers[:ours]:
                if isinstance(answer, ResponseError):  # a Redis that refuses is as good as away
                    raise answer
            return answers

        answers = self.retry_until_done(step)
        for told in again:
            told.fate = Fate.DONE
        return answers[len(again) :]
