"""The in-flight table of a worker: every message from its fetch until it is settled, released, buried or lost.

Guarantees that each state change is atomic under one lock, that a waiting message is released only if it cannot have
started, and that each ack stays in `pending_acks` until Redis has answered it. Sends nothing to Redis: a channel's
fetch and the background thread do. If the process dies, the table is lost and its leases expire.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kombu.log import get_logger

from celery_lanes.leases.pending_acks import RECOVERY, RUN, WAIT, Lease, PendingAcks
from celery_lanes.leases.prefetch import Capacity, Counts, PrefetchEstimator
from celery_lanes.leases.reports import (
    DELAYED,
    DONE,
    INTERRUPTED,
    REFUSED,
    RELEASED,
    STARTED,
    Report,
    ReportChannel,
    Reports,
    Wakeups,
)
from celery_lanes.protocol import MAX_DEATHS, Leased
from celery_lanes.runtime import clock, threads
from celery_lanes.words import NEUTRAL, Words

logger = get_logger(__name__)

#: A message with this many deaths is handed out alone (turn.lua has the same number).
SUSPECT_AFTER = 2

#: Margin for a report in shared memory to become visible to the parent, which takes microseconds.
REPORT_DELAY_S = 0.005


@dataclass(slots=True)
class LeasedMessage:
    """A message in the in-flight table. No other worker can have it before `deadline_s` (clock.now_s)."""

    id: str
    fence: str
    queue: str
    died: int
    deadline_s: float
    taken_s: float
    claimed_s: float | None = None  # passed to the pool: from then on it may have started
    start_by_s: float | None = None  # sent ahead to a busy process, which does not start it after this time
    started_s: float | None = None
    appended_s: float | None = None  # None: not its first run
    alive_s: float | None = None  # when a worker that died with it was last known to be alive; None: no worker died
    is_lost: bool = False  # another worker may have it; it keeps its slot until the handler ends
    termination_problem: dict[str, Any] | None = None  # set on termination: bury it with this instead of releasing it

    @property
    def tag(self) -> str:
        return tag_of(self.id, self.fence)

    @property
    def is_started(self) -> bool:
        return self.started_s is not None

    @property
    def is_suspect(self) -> bool:
        return self.died >= SUSPECT_AFTER

    def may_start(self, now_s: float) -> bool:
        """True if the process that it was sent ahead to may still start it. The caller has read all reports up to
        `now_s`.
        """
        return self.start_by_s is not None and now_s <= self.start_by_s + REPORT_DELAY_S

    def is_overdue(self, now_s: float, lease_s: float) -> bool:
        """True if it did not start within a lease: Celery drops some messages when a connection fails."""
        since_s = self.taken_s if self.claimed_s is None else self.claimed_s
        return not self.is_lost and not self.is_started and now_s - since_s > lease_s


class Terminating(Enum):
    """The result of InFlight.terminate."""

    ENDED = "no longer in flight"
    BURIED = "not started by any process"
    RUNS = "may have started; will be buried instead of released"


class InFlight:
    """One per broker in a worker's main process. It outlives channels and connections.

    A fetch and a renewal each lease a message for `lease_s` seconds. A message is buried after `max_deaths` deaths.
    """

    def __init__(
        self,
        *,
        lease_s: float = 15.0,
        max_deaths: int = MAX_DEATHS,
        channel: ReportChannel | None = None,
        words: Words = NEUTRAL,
    ) -> None:
        self.lease_s = lease_s
        self.max_deaths = max_deaths
        self.words = words
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.must_reconcile = False  # Redis may list messages as leased to this worker that are not in this table
        self._lock = threads.lock()
        self._messages: dict[str, LeasedMessage] = {}  # by tag, oldest first, including lost ones
        self._lost = 0
        self._suspects = 0  # excluding lost ones
        self._last_queues: frozenset[str] = frozenset()
        self.pending_acks = PendingAcks(self._lock)
        self.capacity = Capacity(self.counts, PrefetchEstimator())
        self.channel = channel or ReportChannel()
        self.wakeups = Wakeups(self.channel)
        self.reports = Reports(self.channel, self.wakeups, self._apply)

    # -- inspection

    @property
    def forks(self) -> bool:
        """True if messages run in other processes."""
        return self.capacity.pool is not None and self.capacity.pool.forks

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)

    def counts(self) -> Counts:
        with self._lock:
            return Counts(len(self._messages), self._lost, self._suspects)

    def holding(self) -> int:
        return len(self._messages)

    def leased(self) -> int:
        """The number of messages without lost ones. The death of this process would count for each of them."""
        held, lost, _ = self.counts()
        return held - lost

    def free_slots(self) -> int:
        return max(0, self.capacity.slots_for_lanes - self.holding())

    def room_for_last(self, queues: Collection[str]) -> int:
        """How many messages of the queues that are read last may be fetched: they take half of the slots at most, and
        only free ones, so that a message of another queue finds a slot.
        """
        if not queues:
            return 0
        self._last_queues = frozenset(queues)
        with self._lock:
            held = sum(each.queue in self._last_queues for each in self._messages.values())
        return max(0, min(max(1, self.capacity.slots // 2) - held, self.free_slots()))

    def holds(self, tag: str) -> bool:
        return self._valid(tag) is not None

    def has_unclaimed(self) -> bool:
        with self._lock:
            return bool(self._unclaimed())

    def is_running(self, *, also_lost: bool = False) -> bool:
        """True if a message has started and not ended. With `also_lost`, runs that lost their lease count too."""
        with self._lock:
            return any(each.is_started and (also_lost or not each.is_lost) for each in self._messages.values())

    # -- fetch

    def start_fetch(self) -> list[Lease]:
        """The settles to send with the fetch. They stay pending until `finish_fetch` or `fail_fetch`."""
        self.wakeups.fetch_started()
        return self.pending_acks.start_fetch()

    def finish_fetch(
        self, leased: list[Leased], asked_s: float, *, suspects_wait: bool | None, more: bool = False
    ) -> list[LeasedMessage]:
        """Enter all messages of a fetch, before any is delivered. `more`: Redis has further ready messages."""
        self.wakeups.fetch_ended()
        # Messages that yield to others wait long, without a backlog of the others.
        others = [each for each in leased if each.queue not in self._last_queues]
        self.capacity.fetched(others, suspects_wait=suspects_wait, more=more)
        now_s = clock.now_s()
        taken = [_message(each, asked_s, asked_s + self.lease_s, now_s) for each in leased]
        with self._lock:
            self.pending_acks.fetch_answered()
            for message in taken:
                self._messages[message.tag] = message
                self._suspects += message.is_suspect
        if taken and self.wakeups.is_background_idle and self.holding() > self.capacity.slots_for_lanes:
            self.wakeups.background.set()  # a message waits for a slot; the thread releases it if that takes too long
        return taken

    def fail_fetch(self, *, may_have_run: bool = True) -> None:
        """The answer was lost: the settles are sent again. Settling twice is harmless."""
        self.wakeups.fetch_ended()
        self.must_reconcile = self.must_reconcile or may_have_run
        self.pending_acks.fetch_failed()

    # -- claim

    def claim(self, tag: str, *, starts: bool, start_by_s: float | None = None) -> bool:
        """Mark a message as passed to the pool. False: it was released, or its lease may be over; do not run it.

        Without `start_by_s`, the message is claimed: it may start now, and is not released as waiting. With it
        (clock.now_s), the message is reserved: the process that receives it reports the start first, and starts it only
        before that time. If no report has come by then, it has not started, and may be released.
        """
        now_s = clock.now_s()
        with self._lock:
            message = self._valid(tag)
            if message is None:
                return False
            if message.claimed_s is None:
                if (start_by_s or now_s) >= message.deadline_s:
                    self._remove(tag)
                    return False
                message.start_by_s = start_by_s
                message.claimed_s = now_s if start_by_s is None else None
            if starts:
                self._start(message, now_s)
            return True

    # -- done

    def done(self, tag: str) -> None:
        """Settle the message with the next fetch. Does nothing if it is not in the table."""
        if self._settle(tag, clock.now_s()):
            self.wakeups.slot_is_free()

    # -- release

    def release(self, tag: str, *, died: bool = False, started: bool = True) -> bool:
        """Release the message. `died`: its process ended, which counts as a death if the message had started. A message
        that was not `started` does not count for the rates of its lanes.

        True: it is buried instead, because it was terminated.
        """
        if died:
            self.reports.read()  # the process may have reported the start just before it died
        with self._lock:
            message = self._remove_valid(tag)
            if message is not None:
                self._queue_release(message, died=died and message.is_started, started=started)
        self.wakeups.background.set()
        return message is not None and message.termination_problem is not None

    def release_unclaimed(self, queue: str | None = None) -> int:
        """Release, uncounted, all messages that were not passed to a pool. Returns their number."""
        now_s = clock.now_s()
        self.reports.read_children()  # after this, all reports up to `now_s` are applied
        with self._lock:
            back = [each for each in self._unclaimed() if not each.may_start(now_s)]
            released = self._release([each for each in back if queue in (None, each.queue)])
        self.wakeups.background.set()
        return released

    def release_waiting(self, longer_than_s: float) -> int:
        """Release, uncounted, the messages that have waited too long for a slot: those beyond the free slots.

        A message that has a free slot and is only slow to start stays: on a busy machine it would be fetched again and
        be late again.
        """
        if self.capacity.pool is None:
            return 0
        now_s = clock.now_s()
        self.reports.read_children()
        slots = self.capacity.slots_for_lanes
        with self._lock:
            unclaimed = self._unclaimed()
            free = max(0, slots - (len(self._messages) - len(unclaimed)))
            # A message sent ahead to a busy process that did not start it in time will not start, even with free slots.
            late = [each for each in unclaimed[:free] if each.start_by_s is not None]
            back = [each for each in late + unclaimed[free:] if not each.may_start(now_s)]
            released = self._release([each for each in back if now_s - each.taken_s > longer_than_s])
        if released:
            self.capacity.waited_too_long()
            self.wakeups.background.set()
        return released

    def release_overdue(self) -> int:
        """Release, uncounted, messages that did not start within a lease. If one starts later after all, its process
        asks Redis first, because the first lease is over.
        """
        self.read_reports()
        with self._lock:
            now_s = clock.now_s()
            released = self._release([each for each in self._messages.values() if each.is_overdue(now_s, self.lease_s)])
        self.wakeups.background.set()
        return released

    def release_ids(self, ids: Iterable[str]) -> None:
        """Release, uncounted, messages that were passed to the pool and will not run."""
        wanted = set(ids)
        for tag in self._tags():
            if id_of(tag) in wanted:
                self.release(tag)

    def release_all(self) -> None:
        """Release all messages, when the worker stops and its children have exited: none of them will run here."""
        for tag in self._tags():
            self.release(tag)

    # -- bury, terminate, evict

    def bury(self, tag: str, problem: dict[str, Any]) -> None:
        with self._lock:
            message = self._remove_valid(tag)
            if message is not None:
                self.pending_acks.queued.burials.append((message.id, message.fence, problem))
        self.wakeups.background.set()

    def terminate(self, tag: str, problem: dict[str, Any]) -> Terminating:
        """Bury the message now if it cannot have started; otherwise bury it instead of releasing it, when its process
        has died.
        """
        with self._lock:
            outcome = self._terminate(tag, problem)
        self.wakeups.background.set()
        return outcome

    def _terminate(self, tag: str, problem: dict[str, Any]) -> Terminating:
        message = self._valid(tag)
        if message is None:
            return Terminating.ENDED
        message.termination_problem = problem
        if message.claimed_s is not None or message.may_start(clock.now_s()):
            return Terminating.RUNS
        self._release([message])
        return Terminating.BURIED

    def evict(self, tag: str, delay_ms: int | None, problem: dict[str, Any] | None) -> bool:
        """As Delivery.evict. This worker treats the lease as lost even before Redis has the ack."""
        with self._lock:
            message = self._valid(tag)
            if message is not None:
                queued = self.pending_acks.queued
                self._note_end(message, clock.now_s())
                self._mark_lost(message)
                if problem is None:
                    queued.releases.append((message.id, message.fence, False, True))
                elif delay_ms is None:
                    queued.burials.append((message.id, message.fence, problem))
                else:
                    queued.retries.append((message.id, message.fence, delay_ms, problem))
        self.wakeups.retry_is_delayed()
        return message is not None

    # -- renewal and reconcile

    def leases(self) -> list[Lease]:
        """The leases to renew: of all messages in flight, and of those done but not yet settled in Redis."""
        with self._lock:
            return self._leases()

    def renewed(self, leases: list[Lease], lost: list[str], asked_s: float) -> list[str]:
        """Apply the answer of a renewal. Returns the ids that were lost while they run here; most other lost leases
        belong to messages that were settled meanwhile.
        """
        gone = set(lost)
        running = []
        with self._lock:
            for message_id, fence in leases:
                message = self._messages.get(tag_of(message_id, fence))
                if message is None or message.is_lost:
                    continue
                if message_id not in gone:
                    message.deadline_s = asked_s + self.lease_s
                elif message.is_started:
                    self._mark_lost(message)
                    self.pending_acks.queued.times.lost(message.queue)
                    running.append(message_id)
                else:
                    self._remove(message.tag)
        return running

    def leased_ids(self) -> list[str]:
        """The ids of all messages that Redis may correctly list as leased to this worker."""
        with self._lock:
            return [*(message_id for message_id, _ in self._leases()), *self.pending_acks.unheld_ids()]

    # -- reports

    def read_reports(self) -> None:
        """Called by the background thread, because the main loop may be blocked."""
        self.reports.read()
        if self.holding():
            self.wakeups.slot_is_free()  # this read may have consumed a wake-up meant for the loop

    def _apply(self, report: Report) -> bool:
        """True if a slot may be free now."""
        what, tag, at_s = report
        if what == DONE:
            return self._settle(tag, at_s)
        if what == STARTED:
            with self._lock:
                message = self._valid(tag)
                if message is not None and (message.start_by_s is None or at_s < message.start_by_s):
                    self._start(message, at_s)
        elif what == INTERRUPTED:
            self._interrupted(tag, at_s)
        elif what in (RELEASED, REFUSED):
            with self._lock:
                message = self._remove_valid(tag)
                if message is not None:
                    self._queue_release(message)
            if message is not None and what == REFUSED:  # a loss that a renewal has found is logged
                logger.warning("lanes: the lease of %s is over; another worker may run it", message.id)
            self.capacity.waited_too_long()
            self.wakeups.background.set()
        else:
            with self._lock:
                self._end(tag, at_s)
            if what == DELAYED:
                self.wakeups.retry_is_delayed()
        return True

    def _interrupted(self, tag: str, at_s: float) -> None:
        """The slot stays taken until the handler ends."""
        with self._lock:
            message = self._valid(tag)
            if message is not None:
                self._note_end(message, at_s)
                self._mark_lost(message)

    def _settle(self, tag: str, at_s: float) -> bool:
        """A lost message is only removed from the table. False: it was not in the table."""
        if tag not in self._messages:  # safe without the lock: a tag is entered only once
            return False
        with self._lock:
            message = self._end(tag, at_s)
            if message is not None and not message.is_lost:
                self.pending_acks.queued.settles.append((message.id, message.fence))
        return message is not None

    # -- with the lock held

    def _valid(self, tag: str) -> LeasedMessage | None:
        message = self._messages.get(tag)
        return None if message is None or message.is_lost else message

    def _unclaimed(self) -> list[LeasedMessage]:
        return [each for each in self._messages.values() if each.claimed_s is None and not each.is_lost]

    def _leases(self) -> list[Lease]:
        held = [(each.id, each.fence) for each in self._messages.values() if not each.is_lost]
        return [*held, *self.pending_acks.settles()]

    def _start(self, message: LeasedMessage, at_s: float) -> None:
        if not message.is_started:
            message.started_s = at_s
            message.claimed_s = at_s if message.claimed_s is None else message.claimed_s
            times = self.pending_acks.queued.times
            if message.appended_s is not None:
                times.note(WAIT, message.queue, at_s - message.appended_s)
            if message.alive_s is not None:
                times.note(RECOVERY, message.queue, at_s - message.alive_s)

    def _end(self, tag: str, at_s: float) -> LeasedMessage | None:
        """Remove a message whose run ended at `at_s`."""
        message = self._remove(tag)
        if message is not None:
            self._note_end(message, at_s)
            if not message.is_lost and message.claimed_s is not None:
                self.capacity.estimator.ran(clock.now_s() - message.claimed_s)
        return message

    def _note_end(self, message: LeasedMessage, at_s: float) -> None:
        """A run that lost its lease is not measured: its result is discarded."""
        if message.started_s is not None and not message.is_lost:
            self.pending_acks.queued.times.note(RUN, message.queue, at_s - message.started_s)

    def _remove(self, tag: str) -> LeasedMessage | None:
        message = self._messages.pop(tag, None)
        if message is not None and message.is_lost:
            self._lost -= 1
        elif message is not None:
            self._suspects -= message.is_suspect
        return message

    def _remove_valid(self, tag: str) -> LeasedMessage | None:
        """Like `_remove`, but returns None for a lost message: no ack is sent for it."""
        message = self._remove(tag)
        return None if message is None or message.is_lost else message

    def _mark_lost(self, message: LeasedMessage) -> None:
        """Its handler continues without a lease, and may never end."""
        if not message.is_lost:
            message.is_lost = True
            self._lost += 1
            self._suspects -= message.is_suspect

    def _release(self, back: list[LeasedMessage]) -> int:
        """Release them uncounted: none of them has started."""
        for message in back:
            self._remove(message.tag)
            self._queue_release(message, started=False)
        return len(back)

    def _queue_release(self, message: LeasedMessage, *, died: bool = False, started: bool = True) -> None:
        if message.termination_problem is not None:
            self.pending_acks.queued.burials.append((message.id, message.fence, message.termination_problem))
        else:
            self.pending_acks.queued.releases.append((message.id, message.fence, died, started))

    def _tags(self) -> list[str]:
        with self._lock:
            return list(self._messages)


def tag_of(message_id: str, fence: str) -> str:
    """The delivery tag in kombu and Celery."""
    return f"{message_id}#{fence}"


def id_of(tag: str) -> str:
    return tag.rpartition("#")[0]


def _message(new: Leased, asked_s: float, deadline_s: float, now_s: float) -> LeasedMessage:
    """Redis gives times relative to its answer, which comes at `asked_s` or later."""
    return LeasedMessage(
        new.id,
        new.fence,
        new.queue,
        new.died,
        deadline_s,
        now_s,
        appended_s=asked_s - new.waited_s if new.is_first else None,
        alive_s=None if new.alive_s is None else asked_s - new.alive_s,
    )
