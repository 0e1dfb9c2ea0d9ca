"""One run of a leased message, in the worker's main process or in a forked child.

Guarantees that `start` raises unless the lease with this fence is valid, and that `retry`, `bury` and `commit` change
nothing once it is over. Before the deadline of the lease `start` needs no round trip to Redis: no other worker can have
the message, and all processes of the machine share the clock (clock.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kombu.log import get_logger
from redis.exceptions import RedisError

from celery_lanes.errors import Interrupted, LeaseLost
from celery_lanes.leases import DELAYED, DONE, GONE, INTERRUPTED, REFUSED, RELEASED
from celery_lanes.protocol import Command, Outcome, PreviousCall, Read, Shielded, Store, Write, envelope, keys, plain
from celery_lanes.runtime import clock, threads
from celery_lanes.worker.journal import AppLanes, Journal

if TYPE_CHECKING:
    from celery_lanes.worker.arrivals import Arrivals
    from celery_lanes.worker.interrupt_listener import InterruptListener

logger = get_logger(__name__)

T = TypeVar("T")

#: The attribute of a request that holds its delivery.
REQUEST_ATTRIBUTE = "lanes_delivery"

#: Held only to change the list of callbacks of a delivery.
_callbacks_lock = threads.lock()


class RunLanes(AppLanes, Protocol):
    @property
    def interrupt_listener(self) -> InterruptListener: ...

    @property
    def is_controlled(self) -> bool: ...


@dataclass(slots=True, eq=False)
class Delivery:
    """`failed` and `died` count failed attempts and dead workers before this run. `waited_s` ends at the hand-out.

    Methods that ask Redis retry while it does not answer, for as long as a lease, and then raise RedisAway, unless they
    say otherwise.

    If a forked child dies during a run, its worker releases the message, counted as a death. If the worker dies, the
    lease expires, and the sweep of another worker does the same.
    """

    lanes: RunLanes
    tag: str
    deadline_s: float
    failed: int
    died: int
    waited_s: float = 0.0
    #: The bodies of the messages that were collected with this one, the oldest first, in Celery's JSON format.
    bodies: tuple[str, ...] = ()
    #: A newer message of its group may end this run. `interrupted`: how many earlier runs a message has ended.
    is_interruptible: bool = False
    interrupted: int = 0
    #: This run may take newer messages of its group (`take_arrival`).
    is_steered: bool = False
    is_replayed: bool = False
    #: A newer message has stopped the message, which is only to be ended: LaneTask.on_stopped is called.
    is_stopped: bool = False
    #: The message is over its rate (Rate), and the first such one for a while.
    is_marked: bool = False
    #: Messages that waited behind it have become part of it (gathering.py).
    is_gathered: bool = False
    #: The note of the message's first lane (SetNote), as it was at the hand-out; empty: there is none.
    note: str = ""
    #: A program without lanes has pushed the message onto the queue: it is in no lane.
    is_foreign: bool = False
    #: Its entry of the message's headers, in which "started" is set when the run starts.
    header: dict[str, Any] = field(default_factory=dict, repr=False)
    #: The lease was valid when the run began.
    is_started: bool = field(default=False, init=False)
    #: A newer message has ended this run: nothing that it still does has an effect. Set by another thread.
    is_interrupted: bool = field(default=False, init=False)
    #: Redis has ended the lease as this run has asked.
    _is_ended: bool = field(default=False, init=False, repr=False)
    _journal: Journal | None = field(default=None, init=False, repr=False)
    _on_interrupt: list[Callable[[], object]] = field(default_factory=list, init=False, repr=False)
    _arrivals: Arrivals | None = field(default=None, init=False, repr=False)

    @property
    def journal(self) -> Journal:
        """The only journal of this run: two would give the same numbers to different calls."""
        if self._journal is None:
            with Journal.creation_lock:
                if self._journal is None:
                    find = self._learn_why_refused if self.listens else None
                    of_group = self.is_interruptible
                    self._journal = Journal(self.lanes, self.tag, self.deadline_s, find, is_interruptible=of_group)
                    if self.is_interrupted:
                        self._journal.mark_interrupted()
        return self._journal

    @property
    def listens(self) -> bool:
        """True if a newer message may end this run, and its process is notified: one of its group, or with
        `lanes_control` one that stops it; or that the run may take it.
        """
        return self.is_interruptible or self.is_steered or self.lanes.is_controlled

    @property
    def id(self) -> str:
        return self.tag.rpartition("#")[0]

    @property
    def fence(self) -> str:
        return self.tag.rpartition("#")[2]

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.failed + 1

    def time_ms(self) -> int:
        """The time of Redis, in ms since 1970."""
        command = plain("TIME")
        seconds, microseconds = self.journal.retry_until_done(lambda: self.lanes.store.run(command))
        return int(seconds) * 1000 + int(microseconds) // 1000

    @property
    def age_s(self) -> float:
        """Seconds since the message was appended, or replayed."""
        handed_out_s = self.deadline_s - self.lanes.in_flight.lease_s
        return self.waited_s + max(0.0, clock.now_s() - handed_out_s)

    def start(self) -> None:
        """Start the run. Raises LeaseLost if the message was released or its lease is over."""
        in_flight = self.lanes.in_flight
        if in_flight.reports.is_owner:
            if not in_flight.claim(self.tag, starts=True):
                raise LeaseLost(f"{self.id} was released before it started")
        else:
            if clock.now_s() >= self.deadline_s and not self.lanes.store.holds(self.id, self.fence):
                raise self._refused()
            if not in_flight.channel.begins(self.tag):
                raise LeaseLost(f"{self.id} waited too long behind other jobs; it is released")
        if self.is_steered and not self.is_stopped:
            from celery_lanes.worker.arrivals import Arrivals  # other runs do not import it

            self._arrivals = Arrivals(self.id, self.fence, self._ask)
        if self.listens:
            self._listen()
        if self._arrivals is not None:
            self._begin_arrivals(self._arrivals)
        self.is_started = self.header["started"] = True

    def _listen(self) -> None:
        """From now on an interrupt is noticed, and one that came before. Costs no round trip, unless the process has
        listened for less time than the message waited in it.
        """
        handed_out_s = self.deadline_s - self.lanes.in_flight.lease_s
        arrivals = (self._arrivals.notify, self._arrivals.look) if self._arrivals else None
        listener, store = self.lanes.interrupt_listener, self.lanes.store
        is_known = listener.watch(self.tag, self.interrupt, self._find_missed_interrupt, handed_out_s, arrivals)
        if not is_known:
            self._find_missed_interrupt(store)
        if self.is_interrupted or not (is_known or store.holds(self.id, self.fence)):
            self.end_listening()
            raise self._lost() if self.is_interrupted else self._refused()

    def _begin_arrivals(self, arrivals: Arrivals) -> None:
        try:
            self.bodies = arrivals.begin(self.lanes.store, self.bodies)
        except (LookupError, RedisError) as error:
            self.end_listening()
            raise self._refused() if isinstance(error, LookupError) else error from None

    def has_arrived(self, place: int = 0) -> bool:
        """True if `take_arrival` returns a message now. Sends nothing to Redis: false for some milliseconds after the
        arrival, and longer while this process is not connected.
        """
        return self._arrivals is not None and self._arrivals.has_any(place)

    @property
    def repeats_arrivals(self) -> bool:
        """True if the next message of `take_arrival` is one that a run before this one has taken."""
        return self._arrivals is not None and self._arrivals.is_repeating

    def fetch_arrival(self, place: int = 0) -> bool:
        """Make the round trip of `take_arrival`, and take nothing. False: none has arrived. Raises the same."""
        if self._arrivals is None:
            return False
        try:
            return self._arrivals.fetch(place)
        except LookupError:
            self.journal.mark_refused()
            raise self._lost() from None

    def take_arrival(self, place: int = 0) -> str | None:
        """The body of the next message of the group that has arrived during this run and follows it in its lanes, in
        Celery's JSON format. From now on it belongs to the run, as if it had been collected with it. None: there is
        none.

        A run after a crash or a failure gets the messages that runs before it have taken, in order, and each no earlier
        than at the `place` at which it was taken: a number that grows during a run. Those that it has not got when it
        succeeds form the next run. A message takes at most 1,000 others. Raises LeaseLost.
        """
        return self._arrivals.take(place) if self._arrivals and self.fetch_arrival(place) else None

    def leave_arrivals(self) -> None:
        """The run has succeeded: messages that earlier runs have taken and this one has not got form the next run. Part
        of `commit`. Raises LeaseLost.
        """
        if self._arrivals is not None:
            try:
                self._arrivals.leave_rest()
            except LookupError:
                raise self._refused() from None

    def _ask(self, command: Command[T]) -> T:
        return self.journal.retry_until_done(lambda: self.lanes.store.run(command))

    def end_listening(self) -> None:
        """The run has ended."""
        if self.listens:
            self.lanes.interrupt_listener.forget(self.tag)

    def interrupt(self) -> None:
        """A newer message has ended this run. Called on any thread."""
        with _callbacks_lock:
            callbacks, self._on_interrupt = self._on_interrupt, []
            is_first, self.is_interrupted = not self.is_interrupted, True
        if not is_first:
            return
        if self._journal is not None:
            self._journal.mark_interrupted()
        self.lanes.in_flight.reports.send(INTERRUPTED, self.tag)
        for callback in callbacks:
            callback()

    def on_interrupt(self, callback: Callable[[], object]) -> None:
        """Call this once, on another thread, when a newer message ends this run; at once if it has already."""
        with _callbacks_lock:
            is_late = self.is_interrupted
            if not is_late:
                self._on_interrupt.append(callback)
        if is_late:
            callback()

    def previous_calls(self) -> list[PreviousCall]:
        """The calls that the interrupted or stopped runs before this one have begun, the oldest first; not those that
        were refused.
        """
        if not (self.interrupted or self.is_stopped):
            return []
        return self.journal.retry_until_done(lambda: self.lanes.store.previous_calls(self.id))

    def has_made_calls(self) -> bool:
        """True if an earlier run of the message has begun a call, and it was not refused."""
        if not (self.failed or self.died or self.is_replayed):
            return False
        command = plain("HVALS", keys.journal(self.id))
        calls = self.journal.retry_until_done(lambda: self.lanes.store.run(command))
        return any(call.startswith((b"begun ", b"done ")) for call in calls)

    def shield(self) -> None:
        """Keep this run from being interrupted until `unshield`. Raises Interrupted or LeaseLost, like a call."""
        self._set_shielded(True)

    def unshield(self) -> None:
        """Allow interrupts again: one for which a newer message has waited meanwhile takes place now.

        Raises LeaseLost if the lease was lost before.
        """
        self._set_shielded(False)

    def _set_shielded(self, shielded: bool) -> None:
        if not self.listens:
            return
        outcome = self.journal.retry_until_done(lambda: self.lanes.store.shield(self.id, self.fence, shielded=shielded))
        if outcome is Shielded.INTERRUPTED:
            self.interrupt()
        elif outcome is Shielded.LOST:
            self.journal.mark_refused()
            raise self._lost()

    def close_group(self) -> None:
        """Let later messages wait behind this run, instead of interrupting it or joining its group. A stop still ends
        it. Raises LeaseLost.
        """
        if not self.is_interruptible:
            return
        if not self.journal.retry_until_done(lambda: self.lanes.store.close_group(self.id, self.fence)):
            raise self._refused()

    def check(self) -> None:
        """Check the lease in Redis. Raises LeaseLost if the fence is old; the caller must stop and change nothing."""
        if not self.journal.retry_until_done(lambda: self.lanes.store.holds(self.id, self.fence)):
            raise self._refused()

    def following(self) -> int:
        """How many messages wait behind this one in the longest of its lanes. Raises RedisError."""
        lanes = self.lanes.store.run(plain("HGET", keys.message(self.id), "lanes"))
        asked = [plain("ZCARD", keys.lane(key)) for key in keys.lane_keys((lanes or b"").decode())]
        return max([1, *(self.lanes.store.run_all(*asked) if asked else ())]) - 1

    def is_lost(self) -> bool:
        """True if this process already knows that the lease is over. Sends nothing to Redis."""
        if self.is_interrupted:
            return True
        if self._journal is not None:
            return self._journal.is_lost
        in_flight = self.lanes.in_flight
        return in_flight.reports.is_owner and not in_flight.holds(self.tag)

    @property
    def is_without_lease(self) -> bool:
        """True if this process knows that the lease is over, and the run itself has not ended it: another run of the
        message follows. Sends nothing to Redis.
        """
        return not self._is_ended and self.is_lost()

    @property
    def is_cut_off(self) -> bool:
        """True if an outage of Redis has taken time from this run."""
        return self._journal is not None and self._journal.is_cut_off

    def done(self) -> None:
        """Settle the message, without waiting for Celery's acknowledgement."""
        self._is_ended = True
        self.lanes.in_flight.reports.send(DONE, self.tag)

    def retry(self, *, delay_s: float, problem: dict[str, Any]) -> Outcome:
        """Return the message after a failure: it stays first in its lanes, which wait, and is ready after `delay_s`."""
        ended = partial(self.lanes.store.retry, self.id, self.fence, delay_ms=round(delay_s * 1000), problem=problem)
        return self._end(ended, DELAYED)

    def park(self, *, delay_s: float, kind: str = "", reason: str = "") -> Outcome:
        """Postpone the message without counting an attempt. It stays first in its lanes, which wait, and is ready after
        `delay_s`.

        Parks are counted by `kind`, one word; `lanes status` shows `reason`. The outcome is LOST if the message was
        parked and the answer got lost.
        """
        delay_ms = round(delay_s * 1000)
        ended = partial(self.lanes.store.park, self.id, self.fence, delay_ms=delay_ms, kind=kind, reason=reason)
        return self._end(ended, DELAYED)

    def commit(self, writes: Iterable[Write] = (), *, skipped: bool = False) -> Outcome:
        """Settle the message and make these writes to other keys, all or nothing. After a commit, a crash causes no
        rerun. Many writes are made in portions, before the lanes of the message continue.
        """
        try:
            self.leave_arrivals()
        except LeaseLost:
            return Outcome.LOST
        outcome = self.lanes.store.commit(
            self.id,
            self.fence,
            writes,
            skipped=skipped,
            step=self.journal.retry_until_done,
            decided=self._report_ended,
        )
        self._is_ended |= outcome is not Outcome.LOST
        return outcome

    def read(self, names: Sequence[str]) -> Read:
        """The lane keys of the message, and the values of `names`. Raises LeaseLost."""
        found = self.journal.retry_until_done(lambda: self.lanes.store.read(self.id, self.fence, names))
        if found is None:
            raise self._refused()
        return found

    def mode_of(self, lane: str = "") -> str | None:
        """The mode of a lane (SetMode), by default of the message's first one; None: it has none. Raises LeaseLost."""
        lane = lane or next(iter(self.read([]).lanes), "")
        found: bytes | None = self._ask(plain("HGET", keys.MODES, lane))
        return found.decode() if found else None

    def bury(self, problem: dict[str, Any]) -> Outcome:
        """Move the message to the dead letters; its lanes continue."""
        return self._end(partial(self.lanes.store.bury, self.id, self.fence, problem), GONE)

    def release(self) -> None:
        """Release the message, uncounted, although it has started. The worker's main process sends this to Redis as
        soon as it can.

        Raise Reject(requeue=True) afterwards: if this report gets lost, the message is released, counted as a death.
        """
        if self._journal is not None:
            self._journal.mark_lost()
        self.lanes.in_flight.reports.send(RELEASED, self.tag)

    def release_if_refused(self) -> None:
        """Called when the run has ended. If Redis has refused a command of this run, the acknowledgement must not
        settle the message: the answer may be that of a replica that is behind, after a failover.
        """
        if self._is_ended or self.is_interrupted or self._journal is None or not self._journal.is_refused:
            return
        self.lanes.in_flight.reports.send(REFUSED, self.tag)

    def evict(self, *, delay_s: float | None, problem: dict[str, Any] | None) -> bool:
        """Take the message from a handler of this process that does not end: retry it after `delay_s`, or bury it if
        that is None. If `problem` is None, release it uncounted.

        From now on this worker treats the lease as lost; the slot stays taken until the handler ends. The background
        thread sends this to Redis and retries until it succeeds. False: the message had left the worker, and
        nothing has changed.
        """
        delay_ms = None if delay_s is None else round(delay_s * 1000)
        return self.lanes.in_flight.evict(self.tag, delay_ms, problem)

    def _learn_why_refused(self) -> None:
        """Redis has refused a command of this run. If a newer message has ended it, the notice may still be on its
        way: then the run learns it here.
        """
        with suppress(RedisError):
            if (self.lanes.store.times_interrupted(self.id) or 0) > self.interrupted:
                self.interrupt()

    def _find_missed_interrupt(self, store: Store) -> None:
        """Interrupt this run if a newer message has ended it, or may have: its message has been settled since."""
        times = store.times_interrupted(self.id)
        if times is None or times > self.interrupted:
            self.interrupt()

    def _refused(self) -> LeaseLost:
        self.journal.mark_refused()
        return self._lost()

    def _lost(self) -> LeaseLost:
        if self.is_interrupted:
            return Interrupted(f"a newer message has ended this run of {self.id}")
        return LeaseLost(f"the lease of {self.id} is over; another worker may run it")

    def _end(self, step: Callable[[], Outcome], report: str) -> Outcome:
        """End the run's lease in Redis when it has every outcome of its calls."""
        self.journal.confirm()
        outcome = self.journal.retry_until_done(step)
        self._is_ended |= outcome is not Outcome.LOST
        self._report_ended(report)
        return outcome

    def _report_ended(self, report: str = GONE) -> None:
        """Report that Redis has ended this run's lease, so that Celery's acknowledgement, which follows, settles
        nothing.
        """
        self.lanes.in_flight.reports.send(report, self.tag)


def delivery_of(request: Any, lanes: RunLanes) -> Delivery | None:
    """The delivery of a Celery request (`task.request`), one per run; None if it did not arrive through a lane."""
    delivery: Delivery | None = getattr(request, REQUEST_ATTRIBUTE, None)
    lane = None if delivery or request.called_directly else getattr(request, envelope.LANE, None)
    if lane:
        delivery = delivery_from(lane, request.properties["delivery_tag"], lanes)
        setattr(request, REQUEST_ATTRIBUTE, delivery)
    return delivery


def delivery_from(lane: dict[str, Any], tag: str, lanes: RunLanes) -> Delivery:
    """`lane` is the header envelope.LANE, which the fetch adds to a message."""
    return Delivery(
        lanes=lanes,
        tag=tag,
        deadline_s=lane["deadline_s"],
        failed=lane["failed"],
        died=lane["died"],
        waited_s=lane["waited_s"],
        bodies=tuple(lane.get("bodies", ())),
        is_interruptible=lane.get("interruptible", False),
        interrupted=lane.get("interrupted", 0),
        is_steered=lane.get("steered", False),
        is_replayed=lane.get("replayed_s") is not None,
        is_stopped=lane.get("stopped", False),
        is_marked=lane.get("marked", False),
        is_gathered=lane.get("gathered", False),
        note=lane.get("note", ""),
        is_foreign=lane.get("foreign", False),
        header=lane,
    )
