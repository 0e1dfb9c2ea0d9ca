"""The journal of one run: the external calls that it begins, and their outcomes, for reruns.

Guarantees that no other worker can have the message while `is_sure` is True, so a call that was begun may be made; that
a call costs one awaited round trip, at its begin; and that all outcomes are noted before the message is released. Does
not guarantee that an outcome is noted if this process dies before Redis has read it: the call is then uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from math import inf
from threading import Lock
from typing import Any, Protocol, TypeVar

from redis.exceptions import AuthenticationError, RedisError, ResponseError

from celery_lanes.errors import Interrupted, LeaseLost, RedisAway
from celery_lanes.leases import InFlight
from celery_lanes.protocol import Begun, Command, Fate, Kind, Noted, Store, UnawaitedCommand, plain, verbs
from celery_lanes.runtime import clock, threads
from celery_lanes.worker.shutdown import is_stopping

T = TypeVar("T")

#: A server that restarts is back within seconds; a waiting run keeps its slot.
PAUSE_S = 0.1
#: A worker has 10 s to stop, and one attempt may take 5.
STOPPING_WITHIN_S = 3.0
#: An answer takes milliseconds: a longer wait means an outage.
LONG_S = 1.0
#: Error codes with which a server refuses every write.
_REFUSALS = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY", "TRYAGAIN")


class AppLanes(Protocol):
    """The objects of this process that a run needs (install.py)."""

    @property
    def in_flight(self) -> InFlight: ...

    @property
    def store(self) -> Store: ...


class Journal:
    """Threads and greenlets of one handler may share it. A run that makes no call costs nothing."""

    #: Redis has refused a command of this run.
    is_refused = False
    #: One lock for the whole process: it is held only briefly, and creating one is slow with gevent.
    _lock = Lock()
    creation_lock = Lock()

    def __init__(
        self,
        lanes: AppLanes,
        tag: str,
        sure_until_s: float,
        find_interrupt: Callable[[], None] | None = None,
        *,
        is_interruptible: bool = False,
    ) -> None:
        """`find_interrupt` is called when Redis has refused a command, if a newer message may end this run.
        `is_interruptible`: the next run then continues it.
        """
        self.is_interruptible = is_interruptible
        self.id, _, fence = tag.rpartition("#")
        self._find_interrupt = find_interrupt
        self._lanes = lanes
        self._tag = tag
        self._lease = self.id, fence
        self._is_lost = self._is_interrupted = False
        self._sure_until_s = sure_until_s  # clock.now_s
        self._numbers: dict[str, count[int]] = {}
        self._ends: list[UnawaitedCommand] = []  # those that Redis may not have received
        self._retries = Retries(lanes.in_flight.lease_s, self._redis_answers, is_stopping)

    def position(self, series: str = "") -> str:
        """The position of the next call. Concurrent calls get theirs in the order in which they ask."""
        with self._lock:
            return f"{series}{next(self._numbers.setdefault(series, count(1)))}"

    def begin(self, position: str, what: str, along: Sequence[Command[Any]] = ()) -> tuple[Begun, list[Any]]:
        """Note that a call is about to be made: `what` is `<name>:<more>`. Also returns the answers to the commands
        `along`, which are sent in the same round trip.

        The same call may be begun again as long as it was not made. While Redis does not answer, waits up to a lease.
        Raises LeaseLost and RedisAway.
        """
        self._refuse_if_lost(what)
        asked_s = clock.now_s()
        left, answers = [*along], list[Any]()

        def send(command: Command[T]) -> T:
            answer, *others = self._run_after_ends(command, *left)
            answers.extend(others)
            left.clear()
            return command.read(answer)

        begun = self._lanes.store.begin(*self._lease, lease_ms=self._lease_ms, position=position, what=what, send=send)
        with suppress(RedisError):
            self._run_after_ends()  # the answers may have told that Redis refused an end: it had forgotten its scripts
        if begun.noted is Noted.LOST:
            self.mark_refused()
        elif self.is_lost:  # released meanwhile, because Redis did not answer: the call is not made
            self._lanes.store.send_unawaited(verbs.end(*self._lease, position=position, what=what, kind=Kind.UNDONE))
        self._refuse_if_lost(what)
        self._sure_from(asked_s)
        return begun, answers

    def end(self, position: str, what: str, kind: Kind, outcome: bytes = b"") -> None:
        """Note the outcome of a call. Waits for Redis only if `kind` is UNDONE."""
        asked = verbs.end(*self._lease, position=position, what=what, kind=kind, outcome=outcome)
        if kind is Kind.UNDONE:  # the next command may begin the same call again, and must arrive after this one
            self._note(UnawaitedCommand(asked, Fate.UNKNOWN))
            with suppress(RedisError):
                self.confirm()
        else:
            self._note(self._lanes.store.send_unawaited(asked))

    def confirm(self) -> None:
        """Wait until Redis has every outcome. Called before the message is released. Raises RedisAway."""
        self._run_after_ends(also_under_way=True)

    def mark_lost(self) -> None:
        """The run is over: it makes no more calls, even if its handler continues."""
        self._is_lost = True

    def mark_refused(self) -> None:
        """Redis has refused a command of this run."""
        self.is_refused = True
        self.mark_lost()
        if self._find_interrupt is not None:
            self._find_interrupt()

    def mark_interrupted(self) -> None:
        """A newer message has ended the run: from now on it gets Interrupted instead of LeaseLost."""
        self._is_interrupted = self._is_lost = True

    @property
    def is_lost(self) -> bool:
        """True if this process already knows that the lease is over. Sends nothing to Redis."""
        in_flight = self._lanes.in_flight
        if in_flight.reports.is_owner and not in_flight.holds(self._tag):
            self._is_lost = True
        return self._is_lost

    def is_sure(self) -> bool:
        """True if no other worker can have the message now. Sends nothing to Redis."""
        return not self.is_lost and clock.now_s() < self._sure_until_s

    def ensure(self, what: str) -> None:
        """Renew the lease in Redis unless `is_sure`. Raises LeaseLost, and then `what` must not be done; RedisAway."""
        self._refuse_if_lost(what)
        if self.is_sure():
            return
        asked_s = clock.now_s()
        if self.retry_until_done(lambda: self._lanes.store.renew([self._lease], self._lease_ms)):
            self.mark_refused()
        self._refuse_if_lost(what)
        self._sure_from(asked_s)

    def ask(self, *asked: Command[Any]) -> list[Any]:
        """Run the commands and return their answers. Waits up to a lease while Redis does not answer. Raises
        RedisAway.
        """
        return self.retry_until_done(lambda: self._lanes.store.ask(*asked))

    def retry_until_done(self, step: Callable[[], T]) -> T:
        """The result of `step`, which may run more than once. Waits up to a lease while Redis does not answer. Raises
        RedisAway.
        """
        return self._retries.until_done(step)

    @property
    def is_cut_off(self) -> bool:
        """True if an outage of Redis has taken time from this run."""
        return self._retries.is_cut_off

    # -- internals

    def _redis_answers(self) -> bool:
        try:
            self._lanes.store.run(plain("PING"))
        except RedisError:
            return False
        return True

    @property
    def _lease_ms(self) -> int:
        return self._lanes.in_flight.lease_ms

    def _sure_from(self, asked_s: float) -> None:
        self._sure_until_s = max(self._sure_until_s, asked_s + self._lanes.in_flight.lease_s)

    def _refuse_if_lost(self, what: str) -> None:
        if self._is_interrupted:
            raise Interrupted(
                f"a newer message has ended this run of {self.id}; {what.partition(':')[0]} was not called"
            )
        if self.is_lost:
            raise LeaseLost(f"the lease of {self.id} is over; {what.partition(':')[0]} was not called")

    def _note(self, end: UnawaitedCommand) -> None:
        with self._lock:
            self._ends = [each for each in self._ends if each.fate is not Fate.DONE]
            self._ends.append(end)

    def _run_after_ends(self, *asked: Command[Any], also_under_way: bool = False) -> list[Any]:
        """Run the commands and return their answers, of which all but the first may be errors. Outcomes that may not
        have arrived are sent again before them.
        """
        with self._lock:
            again = [
                end for end in self._ends if end.fate is Fate.UNKNOWN or (also_under_way and end.fate is Fate.UNDER_WAY)
            ]
        if not asked and not again:
            return []
        required = len(again) + min(len(asked), 1)

        def step() -> list[Any]:
            answers = self._lanes.store.ask(*(end.asked for end in again), *asked)
            for answer in answers[:required]:
                if isinstance(answer, ResponseError):  # a server that refuses is treated as unavailable: retry
                    raise answer
            return answers

        answers = self.retry_until_done(step)
        for end in again:
            end.fate = Fate.DONE
        return answers[len(again) :]


class Retries:
    """Repeats the commands of one run while Redis is away. Used by the threads and greenlets of the run.

    An outage of Redis is distinguished from an error of the task: RedisAway is raised only here, for our own commands.
    A step may run twice: its answer may have been lost.

    `answers` returns True if Redis answers a harmless command; `is_stopping` returns True once this worker must stop.
    """

    def __init__(self, within_s: float, answers: Callable[[], bool], is_stopping: Callable[[], bool]) -> None:
        self._within_s = within_s
        self._answers = answers
        self._is_stopping = is_stopping
        self._began_s: dict[object, float] = {}  # for each retry in progress
        self._was_away = False

    @property
    def is_cut_off(self) -> bool:
        """True if an outage of Redis has taken time from the run."""
        now_s = clock.now_s()
        return self._was_away or any(now_s - began_s >= LONG_S for began_s in [*self._began_s.values()])

    def until_done(self, step: Callable[[], T]) -> T:
        """The result of the step, which is repeated while Redis is away or refuses writes.

        Raises RedisAway after `within_s`, and the step's own error if Redis answers everything else.
        """
        began_s = self._began_s[this := object()] = clock.now_s()
        try:
            return self._repeat(step, began_s)
        except RedisError:
            began_s = inf  # Redis was not away: it is the step's own error
            raise
        finally:
            self._was_away |= clock.now_s() - began_s >= LONG_S
            del self._began_s[this]

    def _repeat(self, step: Callable[[], T], began_s: float) -> T:
        while True:
            try:
                return step()
            except (RedisError, OSError) as error:
                waited_s, stops = clock.now_s() - began_s, self._is_stopping()
                if waited_s >= (min(self._within_s, STOPPING_WITHIN_S) if stops else self._within_s):
                    if not stops and self._is_the_steps_own(error):
                        break
                    raise RedisAway(f"Redis is away for {waited_s:.0f} s: {error}") from error
            threads.sleep(PAUSE_S)
        return step()  # Redis has just come back, or the step itself is wrong

    def _is_the_steps_own(self, error: Exception) -> bool:
        """True if nothing is wrong with Redis now."""
        if isinstance(error, AuthenticationError) or str(error).startswith(_REFUSALS):
            return False
        return isinstance(error, ResponseError) or self._answers()
