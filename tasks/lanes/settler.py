"""Every message this process has been handed, from the turn that brought it until it is settled, given back or lost.

Promises that room is computed from what is really held, that nothing is given back once it may have started, and that
what is done stays in its books until Redis has heard of it. There is one for each broker in a worker's main process;
it outlives channels and connections, and any thread or greenlet may call it. It sends nothing itself: a channel's turn
and the lease keeper (leases.py) do.
"""

from __future__ import annotations

import os
import socket
import uuid
from typing import Any

from tasks.lanes import clock, native
from tasks.lanes.answers import Leased
from tasks.lanes.books import SUSPECT_AFTER, Held, Lease, Outbox, Pool, tag_of
from tasks.lanes.commands import MAX_DEATHS
from tasks.lanes.handoff import DONE, STARTED, Handoff
from tasks.lanes.reserve import Reserve


class Settler:
    """See the module. `lease_s` seconds are what a hand-out gives; `max_deaths` bury a message."""

    def __init__(self, *, lease_s: float = 15.0, max_deaths: int = MAX_DEATHS) -> None:
        self.lease_s = lease_s
        self.max_deaths = max_deaths
        self.pid = os.getpid()
        self.holder = f"{socket.gethostname()}:{self.pid}:{uuid.uuid4().hex[:8]}"
        self.handoff = Handoff()
        self.pool: Pool | None = None
        self.outbox_signal = native.Signal()  # the lease keeper waits for it
        self.consumers = 0  # channels that take turns; without one the lease keeper settles
        self._lock = native.lock()
        self._reading = native.lock()
        self._held: dict[str, Held] = {}
        self._occupied = 0  # slots that run something else
        self._suspects = 0
        self._suspects_wait = False
        self._lost = 0  # held, but nothing dies with them: each has a slot and no lease
        self._outbox = Outbox()
        self._telling: list[Lease] = []  # settles that the lease keeper sends just now
        self._in_flight: list[Lease] = []  # and those that a turn took along
        self.answer_lost = False  # what a turn brought may be leased in our name and not in our books
        self._reserve = Reserve()

    @property
    def forks(self) -> bool:
        return self.pool is not None and self.pool.forks

    @property
    def lease_ms(self) -> int:
        return round(self.lease_s * 1000)

    # -- room, and what a turn brings

    def room(self, occupied: int = 0) -> int:
        """How many messages to ask for; `occupied` slots run something else."""
        if self.pool is None:
            return 0
        slots = self.pool.slots()
        with self._lock:
            self._occupied = occupied
            held = len(self._held)
            if self._suspects or (self._suspects_wait and held > self._lost):
                return 0
            if self._suspects_wait:
                return 1 if held < slots else 0
            return max(0, slots + self._reserve.size(slots, slots * self.pool.spare) - held - occupied)

    def holding(self) -> int:
        return len(self._held)

    def leased(self) -> int:
        """As holding, without what was lost: what would count a death if this process died."""
        return len(self._held) - self._lost

    def plan_turn(self) -> list[Lease]:
        """The settles to send along. They stay in the books until `turn_ended` or `turn_failed`."""
        with self._lock:
            self._in_flight = list(self._outbox.settles)
            self._outbox.settles.clear()
            return self._in_flight

    def turn_ended(self, leased: list[Leased], asked_s: float, *, suspects_wait: bool) -> list[Held]:
        """Enter what a turn brought; all of it, before any of it is delivered."""
        taken = [Held(new.id, new.fence, new.queue, new.died, asked_s + self.lease_s, clock.now_s()) for new in leased]
        with self._lock:
            self._in_flight = []
            self._suspects_wait = suspects_wait
            for held in taken:
                self._held[held.tag] = held
                self._suspects += held.died >= SUSPECT_AFTER
        return taken

    def turn_failed(self, *, may_have_run: bool = True) -> None:
        """The answer was lost: the settles are sent again, which is harmless."""
        with self._lock:
            self.answer_lost = self.answer_lost or may_have_run
            self._outbox.settles.extendleft(reversed(self._in_flight))
            self._in_flight = []

    # -- what becomes of a message

    def holds(self, tag: str) -> bool:
        with self._lock:
            held = self._held.get(tag)
            return held is not None and not held.is_lost

    def claim(self, tag: str, *, starts: bool) -> bool:
        """Give a message to the pool for good. False: it was given back, or its lease may be over; do not run it."""
        now_s = clock.now_s()
        with self._lock:
            held = self._held.get(tag)
            if held is None or held.is_lost:
                return False
            if held.claimed_s is None:
                if now_s >= held.deadline_s:
                    self._forget(tag)
                    return False
                held.claimed_s = now_s
            held.is_started = held.is_started or starts
            return True

    def started(self, tag: str) -> None:
        with self._lock:
            held = self._held.get(tag)
            if held is not None:
                held.is_started = True

    def done(self, tag: str) -> None:
        """Settle it with the next turn. Does nothing for a message that is no longer held."""
        if self._enter_done(tag):
            self._notify()

    def gone(self, tag: str) -> None:
        """Whoever ran it has already retried or buried it."""
        with self._lock:
            self._forget(tag)
        self._notify()

    def give_back(self, tag: str, *, died: bool = False) -> None:
        """Release it. `died`: its process ended, which counts when it had started."""
        if died:
            self.read_handoff()  # the last thing that its process said may be that it starts
        with self._lock:
            held = self._forget(tag)
            if held is None or held.is_lost:
                return
            self._outbox.releases.append((held.id, held.fence, died and held.is_started))
        self.outbox_signal.set()

    def bury(self, tag: str, problem: dict[str, Any]) -> None:
        with self._lock:
            held = self._forget(tag)
            if held is None or held.is_lost:
                return
            self._outbox.burials.append((held.id, held.fence, problem))
        self.outbox_signal.set()

    def evict(self, tag: str, delay_ms: int | None, problem: dict[str, Any]) -> bool:
        """Take a message from the handler that runs it: retry it after `delay_ms`, bury it without one.

        The handler is refused from now on, whatever Redis knows; its slot stays taken until it ends.
        """
        with self._lock:
            held = self._held.get(tag)
            if held is None or held.is_lost:
                return False
            self._lose(held)
            if delay_ms is None:
                self._outbox.burials.append((held.id, held.fence, problem))
            else:
                self._outbox.retries.append((held.id, held.fence, delay_ms, problem))
        self.outbox_signal.set()
        return True

    def give_back_unclaimed(self, queue: str | None = None) -> int:
        """Release, uncounted, what no pool has been given; returns how many that were."""
        with self._lock:
            back = [held for held in self._unclaimed() if queue in (None, held.queue)]
            self._release_unstarted(back)
        return len(back)

    def give_back_waiting(self, longer_than_s: float) -> int:
        """Release, uncounted, what waits behind others: as many as there are beyond the free slots, the newest first.

        What has a slot and is only slow to start stays: on a busy machine it would come back and be late again.
        """
        if self.pool is None:
            return 0
        slots, now_s = self.pool.slots(), clock.now_s()
        with self._lock:
            unclaimed = self._unclaimed()
            free = max(0, slots - self._occupied - (len(self._held) - len(unclaimed)))
            back = [held for held in unclaimed[free:] if now_s - held.taken_s > longer_than_s]
            self._release_unstarted(back)
            if back:
                self._reserve.was_given_back()
        return len(back)

    def give_back_all(self) -> None:
        """For the end of a process whose children have ended: what is held now will not be run by anybody here."""
        with self._lock:
            tags = list(self._held)
        for tag in tags:
            self.give_back(tag)

    def read_handoff(self) -> None:
        """Take in what tasks reported. Wakes nobody: whoever reads goes on to send."""
        with self._reading:  # the consumer's thread and the keeper's may come together when the consumer stops
            reports = self.handoff.read()
        for what, tag in reports:
            if what == DONE:
                self._enter_done(tag)
            elif what == STARTED:
                self.started(tag)
            else:
                with self._lock:
                    self._forget(tag)

    # -- for the lease keeper

    def leases(self) -> list[Lease]:
        """What to renew: all that is held, and what is done but not yet settled.

        Not what a pool was given a lease ago and never started: Celery drops some when a connection breaks.
        """
        with self._lock:
            held = [(held.id, held.fence) for held in self._held.values() if not self._lapses(held)]
            return [*held, *self._outbox.settles, *self._telling, *self._in_flight]

    def renewed(self, leases: list[Lease], lost: list[str], asked_s: float) -> list[str]:
        """Enter the answer to a renewal; returns those lost while they run here. Most others were settled meanwhile."""
        gone = set(lost)
        running = []
        with self._lock:
            for message_id, fence in leases:
                held = self._held.get(tag_of(message_id, fence))
                if held is None:
                    continue
                if message_id not in gone:
                    held.deadline_s = asked_s + self.lease_s
                elif held.is_started:
                    self._lose(held)
                    running.append(message_id)
                else:
                    self._forget(held.tag)
        return running

    def take_outbox(self) -> Outbox:
        """All that Redis has not been told. Its settles stay in the books until `told` or `put_back`."""
        with self._lock:
            taken, self._outbox = self._outbox, Outbox()
            self._telling = list(taken.settles)
            return taken

    def told(self) -> None:
        self._telling = []

    def put_back(self, outbox: Outbox) -> None:
        with self._lock:
            self._telling = []
            self._outbox.settles.extendleft(reversed(outbox.settles))
            self._outbox.releases.extendleft(reversed(outbox.releases))
            self._outbox.burials.extendleft(reversed(outbox.burials))
            self._outbox.retries.extendleft(reversed(outbox.retries))

    def has_unclaimed(self) -> bool:
        with self._lock:
            return any(held.claimed_s is None for held in self._held.values())

    def has_outbox(self) -> bool:
        return self.has_settles() or self.has_urgent()

    def has_settles(self) -> bool:
        return bool(self._outbox.settles)

    def has_urgent(self) -> bool:
        """Whether there is something to tell that no turn takes along."""
        return bool(self._outbox.releases or self._outbox.burials or self._outbox.retries)

    # -- inside

    def _enter_done(self, tag: str) -> bool:
        with self._lock:
            held = self._forget(tag)
            if held is None or held.is_lost:
                return held is not None
            if held.claimed_s is not None:
                self._reserve.ran(clock.now_s() - held.claimed_s)
            self._outbox.settles.append((held.id, held.fence))
            return True

    def _unclaimed(self) -> list[Held]:
        return [held for held in self._held.values() if held.claimed_s is None and not held.is_lost]

    def _release_unstarted(self, back: list[Held]) -> None:
        for held in back:
            self._forget(held.tag)
            self._outbox.releases.append((held.id, held.fence, False))
        if back:
            self.outbox_signal.set()

    def _forget(self, tag: str) -> Held | None:
        held = self._held.pop(tag, None)
        if held is not None and held.is_lost:
            self._lost -= 1
        elif held is not None and held.died >= SUSPECT_AFTER:
            self._suspects -= 1
        return held

    def _lose(self, held: Held) -> None:
        """Its handler goes on without a lease. It may never end: nobody may wait for it."""
        if held.is_lost:
            return
        held.is_lost = True
        self._lost += 1
        self._suspects -= held.died >= SUSPECT_AFTER

    def _lapses(self, held: Held) -> bool:
        if held.is_lost:
            return True
        return held.claimed_s is not None and not held.is_started and clock.now_s() - held.claimed_s > self.lease_s

    def _notify(self) -> None:
        """A slot is free: the consumer's loop must go round, or without one the lease keeper."""
        if self.consumers:
            self.handoff.wake()
        else:
            self.outbox_signal.set()
