"""The in-flight table of a worker: each message from the fetch that brought it until it is settled, released, buried
or lost.

Guarantees that each transition is one step under one lock, whichever thread makes it; that nothing is released once it
may have started; and that each decision is in `pending_acks` until Redis has answered it. Sends nothing to Redis: a
channel's fetch and the background thread do. It outlives channels and connections.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable
from enum import Enum
from typing import Any

from chatlanes.lanes.leases.message import Lease, LeasedMessage, id_of, tag_of
from chatlanes.lanes.leases.pending_acks import PendingAcks
from chatlanes.lanes.leases.prefetch import Capacity, Counts, PrefetchEstimator
from chatlanes.lanes.leases.report_channel import DELAYED, DONE, RELEASED, STARTED, Report, ReportChannel
from chatlanes.lanes.leases.reports import Reports
from chatlanes.lanes.leases.wakeups import Wakeups
from chatlanes.lanes.protocol.commands import MAX_DEATHS
from chatlanes.lanes.protocol.replies import Leased
from chatlanes.lanes.runtime import clock, os_threads


class Terminating(Enum):
    """What became of a message that is to be terminated."""

    ENDED = "it was not in flight any more"
    BURIED = "no process had started it"
    RUNS = "it may have started: it is buried where it would be released"


class InFlight:
    """One for each broker in a worker's main process. `lease_s` seconds are what a fetch and a renewal give;
    `max_deaths` bury a message.
    """

    def __init__(
        self, *, lease_s: float = 15.0, max_deaths: int = MAX_DEATHS, channel: ReportChannel | None = None
    ) -> None:
        self.lease_s = lease_s
        self.max_deaths = max_deaths
        self.holder = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.must_reconcile = False  # Redis may believe that we hold what is not in this table
        self._lock = os_threads.lock()
        self._messages: dict[str, LeasedMessage] = {}  # by tag, the oldest first; lost ones too
        self._lost = 0
        self._suspects = 0  # without lost ones
        self.pending_acks = PendingAcks(self._lock)
        self.capacity = Capacity(self.counts, PrefetchEstimator())
        self.channel = channel or ReportChannel()
        self.wakeups = Wakeups(self.channel)
        self.reports = Reports(self.channel, self.wakeups, self._apply)

    # -- what is in flight

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
        """Without lost ones: those for which the death of this process would count."""
        held, lost, _ = self.counts()
        return held - lost

    def holds(self, tag: str) -> bool:
        return self._valid(tag) is not None

    def has_unclaimed(self) -> bool:
        with self._lock:
            return bool(self._unclaimed())

    def is_running(self, *, also_lost: bool = False) -> bool:
        """True if a message has started and not ended; `also_lost`: or runs without a lease."""
        with self._lock:
            return any(each.is_started and (also_lost or not each.is_lost) for each in self._messages.values())

    # -- fetch

    def start_fetch(self) -> list[Lease]:
        """The settles to send along. They stay pending until `finish_fetch` or `fail_fetch`."""
        self.wakeups.fetch_started()
        return self.pending_acks.start_fetch()

    def finish_fetch(
        self, leased: list[Leased], asked_s: float, *, suspects_wait: bool | None, more: bool = False
    ) -> list[LeasedMessage]:
        """Enter all that a fetch brought, before any of it is delivered. `more`: others are ready."""
        self.wakeups.fetch_ended()
        self.capacity.fetched(leased, suspects_wait=suspects_wait, more=more)
        now_s = clock.now_s()
        taken = [_message(each, asked_s, asked_s + self.lease_s, now_s) for each in leased]
        with self._lock:
            self.pending_acks.fetch_answered()
            for message in taken:
                self._messages[message.tag] = message
                self._suspects += message.is_suspect
        if taken and self.wakeups.is_background_resting and self.holding() > self.capacity.slots_for_lanes:
            self.wakeups.background.set()  # a message has to wait, and is released if it waits for too long
        return taken

    def fail_fetch(self, *, may_have_run: bool = True) -> None:
        """The answer was lost: the settles are sent again, which is harmless."""
        self.wakeups.fetch_ended()
        self.must_reconcile = self.must_reconcile or may_have_run
        self.pending_acks.fetch_failed()

    def require_reconcile(self) -> None:
        """Redis may have handed out messages that never arrived here."""
        self.must_reconcile = True

    def reconciled(self) -> None:
        self.must_reconcile = False

    # -- claim

    def claim(self, tag: str, *, starts: bool, start_by_s: float | None = None) -> bool:
        """Give a message to the pool for good. False: it was released, or its lease may be over; do not run it.

        With `start_by_s` (clock.now_s) it is not for good: the process that gets it reports the start, and then starts
        it only before that time. If no report has arrived by then, it has not started and will not.
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
        """Settle it with the next fetch. Does nothing for a message that is not in the table."""
        if self._settle(tag, clock.now_s()):
            self.wakeups.slot_is_free()

    # -- release

    def release(self, tag: str, *, died: bool = False) -> bool:
        """Release it. `died`: its process ended, which counts if it had started. True: it is buried instead, because it
        was terminated.
        """
        if died:
            self.reports.read()  # the last report of its process may be the start
        with self._lock:
            message = self._remove_valid(tag)
            if message is not None:
                self._queue_release(message, died=died and message.is_started)
        self.wakeups.background.set()
        return message is not None and message.verdict is not None

    def release_unclaimed(self, queue: str | None = None) -> int:
        """Release, uncounted, all that no pool was given; returns how many."""
        now_s = clock.now_s()
        self.reports.read_children()  # all reports up to `now_s` are known
        with self._lock:
            back = [each for each in self._unclaimed() if not each.may_start(now_s)]
            released = self._release([each for each in back if queue in (None, each.queue)])
        self.wakeups.background.set()
        return released

    def release_waiting(self, longer_than_s: float) -> int:
        """Release, uncounted, what waits behind others: all beyond the free slots, the newest first.

        A message that has a slot and is only slow to start stays: on a busy machine it would come back and be late
        again.
        """
        if self.capacity.pool is None:
            return 0
        now_s = clock.now_s()
        self.reports.read_children()
        slots = self.capacity.slots_for_lanes
        with self._lock:
            unclaimed = self._unclaimed()
            free = max(0, slots - (len(self._messages) - len(unclaimed)))
            # A message that a busy process did not start in time will not be started, however many slots are free.
            late = [each for each in unclaimed[:free] if each.start_by_s is not None]
            back = [each for each in late + unclaimed[free:] if not each.may_start(now_s)]
            released = self._release([each for each in back if now_s - each.taken_s > longer_than_s])
        if released:
            self.capacity.waited_too_long()
            self.wakeups.background.set()
        return released

    def release_overdue(self) -> int:
        """Release, uncounted, what did not start within a lease. If it starts all the same, it asks Redis first,
        because its first lease is over.
        """
        self.read_reports()
        with self._lock:
            now_s = clock.now_s()
            released = self._release([each for each in self._messages.values() if each.is_overdue(now_s, self.lease_s)])
        self.wakeups.background.set()
        return released

    def release_ids(self, ids: Iterable[str]) -> None:
        """Release, uncounted, what the pool was given and will not run."""
        wanted = set(ids)
        for tag in self._tags():
            if id_of(tag) in wanted:
                self.release(tag)

    def release_all(self) -> None:
        """At the end of a process whose children have ended: nothing that is in flight will run here."""
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
        """Bury it now if it cannot have started, else where it would be released: when its process has died."""
        with self._lock:
            outcome = self._terminate(tag, problem)
        self.wakeups.background.set()
        return outcome

    def _terminate(self, tag: str, problem: dict[str, Any]) -> Terminating:
        message = self._valid(tag)
        if message is None:
            return Terminating.ENDED
        message.verdict = problem
        if message.claimed_s is not None or message.may_start(clock.now_s()):
            return Terminating.RUNS
        self._release([message])
        return Terminating.BURIED

    def evict(self, tag: str, delay_ms: int | None, problem: dict[str, Any] | None) -> bool:
        """Take a message from the handler that runs it: retry it after `delay_ms`, bury it without one; without a
        problem, release it uncounted.

        The handler is refused from now on, whatever Redis knows; its slot stays taken until it ends.
        """
        with self._lock:
            message = self._valid(tag)
            if message is not None:
                queued = self.pending_acks.queued
                queued.times.ended(message, clock.now_s())
                self._lose(message)
                if problem is None:
                    queued.releases.append((message.id, message.fence, False))
                elif delay_ms is None:
                    queued.burials.append((message.id, message.fence, problem))
                else:
                    queued.retries.append((message.id, message.fence, delay_ms, problem))
        self.wakeups.retry_is_delayed()
        return message is not None

    # -- renewal and reconcile

    def leases(self) -> list[Lease]:
        """The leases to renew: of all that is held, and of what is done but not yet settled."""
        with self._lock:
            return self._leases()

    def renewed(self, leases: list[Lease], lost: list[str], asked_s: float) -> list[str]:
        """Enter the answer of a renewal; returns those lost while they run here. Most others were settled meanwhile."""
        gone = set(lost)
        running = []
        with self._lock:
            for message_id, fence in leases:
                message = self._messages.get(tag_of(message_id, fence))
                if message is None:
                    continue
                if message_id not in gone:
                    message.deadline_s = asked_s + self.lease_s
                elif message.is_started:
                    self._lose(message)
                    self.pending_acks.queued.times.lost(message)
                    running.append(message_id)
                else:
                    self._remove(message.tag)
        return running

    def leased_ids(self) -> list[str]:
        """The ids of all that Redis may rightly believe to be leased to this worker."""
        with self._lock:
            return [*(message_id for message_id, _ in self._leases()), *self.pending_acks.unheld_ids()]

    # -- reports

    def read_reports(self) -> None:
        """For the background thread, because the loop that should read them may be busy."""
        self.reports.read()
        if self.holding():
            self.wakeups.slot_is_free()  # a wake-up of the loop may have been read away

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
        elif what == RELEASED:
            with self._lock:
                message = self._remove_valid(tag)
                if message is not None:
                    self._queue_release(message)
            self.capacity.waited_too_long()
            self.wakeups.background.set()
        else:
            with self._lock:
                self._end(tag, at_s)
            if what == DELAYED:
                self.wakeups.retry_is_delayed()
        return True

    def _settle(self, tag: str, at_s: float) -> bool:
        """A lost message only leaves the table. False: it was not in it."""
        if tag not in self._messages:  # no tag is entered twice, so it will not appear later
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
            self.pending_acks.queued.times.began(message, at_s)

    def _end(self, tag: str, at_s: float) -> LeasedMessage | None:
        """Its run ended at `at_s`, and its slot is free."""
        message = self._remove(tag)
        if message is not None:
            self.pending_acks.queued.times.ended(message, at_s)
            if not message.is_lost and message.claimed_s is not None:
                self.capacity.estimator.ran(clock.now_s() - message.claimed_s)
        return message

    def _remove(self, tag: str) -> LeasedMessage | None:
        message = self._messages.pop(tag, None)
        if message is not None and message.is_lost:
            self._lost -= 1
        elif message is not None:
            self._suspects -= message.is_suspect
        return message

    def _remove_valid(self, tag: str) -> LeasedMessage | None:
        """As `_remove`, but None for a lost message: there is nothing to send about it."""
        message = self._remove(tag)
        return None if message is None or message.is_lost else message

    def _lose(self, message: LeasedMessage) -> None:
        """Its handler goes on without a lease, and may never end."""
        if not message.is_lost:
            message.is_lost = True
            self._lost += 1
            self._suspects -= message.is_suspect

    def _release(self, back: list[LeasedMessage]) -> int:
        """Uncounted: none of them has started."""
        for message in back:
            self._remove(message.tag)
            self._queue_release(message)
        return len(back)

    def _queue_release(self, message: LeasedMessage, *, died: bool = False) -> None:
        if message.verdict is not None:
            self.pending_acks.queued.burials.append((message.id, message.fence, message.verdict))
        else:
            self.pending_acks.queued.releases.append((message.id, message.fence, died))

    def _tags(self) -> list[str]:
        with self._lock:
            return list(self._messages)


def _message(new: Leased, asked_s: float, deadline_s: float, now_s: float) -> LeasedMessage:
    """Times that Redis gave relative to its answer were true no earlier than `asked_s`."""
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
