"""Every message this process has been handed, from the turn that brought it until it is settled, given back or lost.

Promises that room is computed from what is really held, that nothing is given back once it may have started, and that
what is done stays in its ledger until Redis has heard of it. There is one for each broker in a worker's main process;
it outlives channels and connections, and any thread or greenlet may call it. It sends nothing itself: a channel's turn
and the lease keeper (heartbeat.py) do.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable
from typing import Any

from chatlanes.lanes.leases.books import Held, Lease, id_of
from chatlanes.lanes.leases.capacity import Room
from chatlanes.lanes.leases.ledger import Ledger, Terminating
from chatlanes.lanes.leases.report_channel import DELAYED, DONE, RETURNED, STARTED, Handoff, Report
from chatlanes.lanes.leases.timings import Times
from chatlanes.lanes.protocol.commands import MAX_DEATHS
from chatlanes.lanes.protocol.replies import Leased
from chatlanes.lanes.runtime import clock, os_threads, process

#: Most often it takes some milliseconds. One that takes longer must not keep the loop from noticing that it does.
ANSWERED_WITHIN_S = 0.1


class Settler:
    """See the module. `lease_s` seconds are what a hand-out gives; `max_deaths` bury a message."""

    def __init__(self, *, lease_s: float = 15.0, max_deaths: int = MAX_DEATHS, handoff: Handoff | None = None) -> None:
        self.lease_s = lease_s
        self.max_deaths = max_deaths
        self.pid = os.getpid()
        self.holder = f"{socket.gethostname()}:{self.pid}:{uuid.uuid4().hex[:8]}"
        self.handoff = handoff or Handoff()
        self.ledger = Ledger(lease_s)
        self.holds, self.claim = self.ledger.holds, self.ledger.claim
        self.room = Room(self.ledger)
        self.outbox_signal = os_threads.Signal()  # the lease keeper waits for it
        self.keeper_rests = False  # it waits for longer than for a moment
        self.consumers = 0  # channels that take turns; without one the lease keeper settles
        self.turned_s = 0.0  # the last turn took along what was done by then (clock.now_s)
        self.must_reconcile = False  # something may be leased in our name that is not in our books
        self.hear: Callable[[], None] = self.read_children  # a forking pool puts its own in place of it
        self._reading = os_threads.lock()
        self._is_woken = False  # the loop will go round, and look at the ledger then
        self._answer_until_s = 0.0  # a turn is under way, whose answer should arrive by then
        self._has_delayed = False  # something may be due sooner than the next sweep

    @property
    def is_here(self) -> bool:
        """Whether this process holds the messages. A child of it has a copy, with a pipe that leads here."""
        return self.pid == process.pid

    @property
    def forks(self) -> bool:
        return self.room.pool is not None and self.room.pool.forks

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)

    # -- what a turn brings

    def holding(self) -> int:
        return self.ledger.counts().held

    def leased(self) -> int:
        """As holding, without what was lost: what would count a death if this process died."""
        held, lost, _ = self.ledger.counts()
        return held - lost

    def plan_turn(self) -> list[Lease]:
        """The settles to send along. They stay in the ledger until `turn_ended` or `turn_failed`."""
        self.turned_s = clock.now_s()
        self._answer_until_s = self.turned_s + ANSWERED_WITHIN_S
        return self.ledger.to_turn()

    def plan_times(self) -> Times:
        """The times to send along, if any; as the settles."""
        return self.ledger.times_to_turn()

    def turn_ended(
        self, leased: list[Leased], asked_s: float, *, suspects_wait: bool | None, more: bool = False
    ) -> list[Held]:
        """Enter what a turn brought; all of it, before any of it is delivered. `more`: others are ready."""
        self._answer_until_s = 0.0
        self.room.turned(leased, suspects_wait=suspects_wait, more=more)
        taken = self.ledger.turn_ended(leased, asked_s)
        if self.keeper_rests and leased and self.holding() > self.room.for_lanes:
            self.outbox_signal.set()  # something has to wait, and is given back when it waits for too long
        return taken

    def turn_failed(self, *, may_have_run: bool = True) -> None:
        """The answer was lost: the settles are sent again, which is harmless."""
        self._answer_until_s = 0.0
        self.must_reconcile = self.must_reconcile or may_have_run
        self.ledger.turn_failed()

    # -- what becomes of a message

    def done(self, tag: str) -> None:
        """Settle it with the next turn. Does nothing for a message that is no longer held."""
        now_s = clock.now_s()
        held = self.ledger.settle(tag, now_s)
        if held is not None:
            self._learn(held, now_s)
            self._notify()

    def gone(self, tag: str, *, delayed: bool = False) -> None:
        """Whoever ran it has already committed, retried, parked or buried it."""
        now_s = clock.now_s()
        self._learn(self.ledger.forget(tag, now_s), now_s)
        if delayed:
            self._something_is_delayed()
        self._notify()

    def give_back(self, tag: str, *, died: bool = False) -> bool:
        """Release it. `died`: its process ended, which counts when it had started. Whether it is buried instead,
        because it was terminated.
        """
        if died:
            self.read_handoff()  # the last thing that its process said may be that it starts
        is_buried = self.ledger.release(tag, died=died)
        self.outbox_signal.set()
        return is_buried

    def bury(self, tag: str, problem: dict[str, Any]) -> None:
        self.ledger.bury(tag, problem)
        self.outbox_signal.set()

    def terminate(self, tag: str, problem: dict[str, Any]) -> Terminating:
        """Bury it now if nobody can have started it, else where it would be given back: when its process has died."""
        outcome = self.ledger.terminate(tag, problem)
        self.outbox_signal.set()
        return outcome

    def evict(self, tag: str, delay_ms: int | None, problem: dict[str, Any] | None) -> bool:
        """Take a message from the handler that runs it: retry it after `delay_ms`, bury it without one; without a
        problem, release it uncounted.

        The handler is refused from now on, whatever Redis knows; its slot stays taken until it ends.
        """
        was_held = self.ledger.evict(tag, delay_ms, problem)
        self._something_is_delayed()
        return was_held

    def give_back_unclaimed(self, queue: str | None = None) -> int:
        """Release, uncounted, what no pool has been given; returns how many that were."""
        now_s = clock.now_s()
        self.read_children()
        released = self.ledger.release_unclaimed(queue, now_s)
        self.outbox_signal.set()
        return released

    def give_back_waiting(self, longer_than_s: float) -> int:
        """Release, uncounted, what waits behind others: as many as there are beyond the free slots, the newest first.

        What has a slot and is only slow to start stays: on a busy machine it would come back and be late again.
        """
        if self.room.pool is None:
            return 0
        now_s = clock.now_s()
        self.read_children()
        released = self.ledger.release_waiting(self.room.for_lanes, longer_than_s, now_s)
        if released:
            self.room.was_given_back()
            self.outbox_signal.set()
        return released

    def give_back_forgotten(self) -> int:
        """Release, uncounted, what did not start within a lease."""
        self.hear_of_ends()
        released = self.ledger.release_forgotten()
        self.outbox_signal.set()
        return released

    def hear_of_ends(self) -> None:
        """As read_handoff, for the lease keeper: the loop that should read may be busy."""
        self.read_handoff()
        if self.holding():
            self._notify()  # what was read may have been meant for the loop

    def give_back_dropped(self, ids: set[str]) -> None:
        """Release, uncounted, what the pool was given and will not run."""
        for tag in self.ledger.tags():
            if id_of(tag) in ids:
                self.give_back(tag)

    def give_back_all(self) -> None:
        """For the end of a process whose children have ended: what is held now will not be run by anybody here."""
        for tag in self.ledger.tags():
            self.give_back(tag)

    def read_handoff(self) -> None:
        """Take in what tasks reported. Wakes nobody: whoever reads goes on to send."""
        with self._reading:  # the consumer's thread and the keeper's may come together
            reports = self.handoff.read()
            # Not before: a wake that was read away would keep this set, and all that follow would be saved for good.
            self._is_woken = False
            self._take_in(reports)

    def read_children(self) -> None:
        """As read_handoff, but only what forked children reported, which costs next to nothing when that is nothing."""
        with self._reading:  # also when there is nothing to read: another thread may be taking it in just now
            if self.handoff.has_reports():
                self._take_in(self.handoff.read_children())

    def report(self, what: str, tag: str) -> None:
        """Whoever runs a message says what became of it, in the worker's main process or in a child of it."""
        if not self.is_here:
            self.handoff.report(what, tag)
        elif what == DONE:
            self.done(tag)
        else:
            self._take_in([Report(what, tag, clock.now_s())])
            self._notify()

    def _take_in(self, reports: list[Report]) -> None:
        now_s = clock.now_s()
        for what, tag, at_s in reports:
            if what == DONE:
                self._learn(self.ledger.settle(tag, at_s), now_s)
            elif what == STARTED:
                self.ledger.started(tag, at_s)
            elif what == RETURNED:
                self._was_returned(tag)
            else:
                self._learn(self.ledger.forget(tag, at_s), now_s)
                if what == DELAYED:
                    self._something_is_delayed()

    def _was_returned(self, tag: str) -> None:
        self.ledger.returned(tag)
        self.room.was_given_back()
        self.outbox_signal.set()

    def _learn(self, held: Held | None, now_s: float) -> None:
        """How long its slot was taken, which is free now."""
        if held is not None and not held.is_lost and held.claimed_s is not None:
            self.room.ran(now_s - held.claimed_s)

    def heard_of_delays(self) -> bool:
        """Whether something was given back for later since the last time."""
        heard, self._has_delayed = self._has_delayed, False
        return heard

    def _something_is_delayed(self) -> None:
        self._has_delayed = True
        self.outbox_signal.set()

    def _notify(self) -> None:
        """A slot is free: the consumer's loop must go round, or without one the lease keeper."""
        if not self.consumers:
            self.outbox_signal.set()
        elif not self._is_woken and clock.now_s() >= self._answer_until_s:  # a turn's answer makes it go round, too
            self._is_woken = True
            self.handoff.wake()
