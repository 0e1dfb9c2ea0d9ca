"""What a worker holds and what it owes Redis, under one lock.

Promises that every move from the one to the other is a single step, whoever makes it: a loop, a greenlet, a thread of
the pool or the lease keeper. Decides nothing about room and wakes nobody; the settler does.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from chatlanes.lanes.leases.books import Books, Held, Lease, tag_of
from chatlanes.lanes.leases.pending_acks import Outbox, Untold
from chatlanes.lanes.leases.timings import Times
from chatlanes.lanes.protocol.replies import Leased
from chatlanes.lanes.runtime import clock, os_threads


class Counts(NamedTuple):
    """Messages held; of those: lost ones, which nothing dies with, and suspects, which want a worker for themselves."""

    held: int
    lost: int
    suspects: int


class Terminating(Enum):
    """What became of a message that is to be terminated."""

    ENDED = "it was not held any more"
    BURIED = "nobody had started it"
    RUNS = "it may have started: it is buried where it would be given back"


class Ledger:
    """`lease_s` seconds are what a hand-out and a renewal give."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._books = Books()
        self._outbox = Outbox()
        self._lock = os_threads.lock()

    def counts(self) -> Counts:
        with self._lock:
            return Counts(len(self._books), self._books.lost, self._books.suspects)

    def tags(self) -> list[str]:
        with self._lock:
            return self._books.tags()

    def is_running(self, *, also_lost: bool = False) -> bool:
        """Whether something that is held has started and not ended; `also_lost`: or goes on without a lease."""
        with self._lock:
            return any(held.is_started and (also_lost or not held.is_lost) for held in self._books.held.values())

    # -- a turn

    def to_turn(self) -> list[Lease]:
        """The settles to send along. They stay known until `turn_ended` or `turn_failed`."""
        with self._lock:
            return self._outbox.to_turn()

    def times_to_turn(self) -> Times:
        with self._lock:
            return self._outbox.times_to_turn(clock.now_s())

    def turn_ended(self, leased: list[Leased], asked_s: float) -> list[Held]:
        now_s = clock.now_s()
        taken = [_held(new, asked_s, asked_s + self.lease_s, now_s) for new in leased]
        with self._lock:
            self._outbox.turn_ended()
            for held in taken:
                self._books.enter(held)
        return taken

    def turn_failed(self) -> None:
        with self._lock:
            self._outbox.turn_failed()

    # -- what becomes of a message

    def holds(self, tag: str) -> bool:
        return self._books.valid(tag) is not None

    def claim(self, tag: str, *, starts: bool, start_by_s: float | None = None) -> bool:
        """Give a message to the pool for good. False: it was given back, or its lease may be over; do not run it.

        With `start_by_s` (clock.now_s) it is not for good: who was given it says that it begins, and then begins only
        when that time has not come yet. Of whom nothing was heard by then has not begun, and will not.
        """
        now_s = clock.now_s()
        with self._lock:
            held = self._books.valid(tag)
            if held is None:
                return False
            if held.claimed_s is None:
                if (start_by_s or now_s) >= held.deadline_s:
                    self._books.forget(tag)
                    return False
                held.start_by_s = start_by_s
                held.claimed_s = now_s if start_by_s is None else None
            if starts:
                self._begin(held, now_s)
            return True

    def started(self, tag: str, at_s: float) -> None:
        with self._lock:
            held = self._books.valid(tag)
            if held is not None and (held.start_by_s is None or at_s < held.start_by_s):
                self._begin(held, at_s)

    def forget(self, tag: str, at_s: float) -> Held | None:
        """Its run ended at `at_s`, and Redis knows what became of it."""
        with self._lock:
            held = self._books.forget(tag)
            self._outbox.untold.times.ended(held, at_s)
            return held

    def settle(self, tag: str, at_s: float) -> Held | None:
        """What was held; a lost one only leaves the books."""
        if tag not in self._books.held:  # nobody enters a tag twice: it will not be held later
            return None
        with self._lock:
            held = self._books.forget(tag)
            self._outbox.untold.times.ended(held, at_s)
            if held is not None and not held.is_lost:
                self._outbox.untold.settles.append((held.id, held.fence))
            return held

    def returned(self, tag: str) -> None:
        """Released uncounted: the process that it was given to says that it has not begun it."""
        with self._lock:
            held = self._books.forget_valid(tag)
            if held is not None:
                self._give_back(held)

    def release(self, tag: str, *, died: bool) -> bool:
        """`died` counts when it had started. Whether it was terminated, and is buried."""
        with self._lock:
            held = self._books.forget_valid(tag)
            if held is not None:
                self._give_back(held, died=died and held.is_started)
            return held is not None and held.verdict is not None

    def release_unclaimed(self, queue: str | None, now_s: float) -> int:
        """What was said by `now_s` is known."""
        with self._lock:
            back = [held for held in self._books.unclaimed() if not held.may_start(now_s)]
            return self._release([held for held in back if queue in (None, held.queue)])

    def release_waiting(self, slots: int, longer_than_s: float, now_s: float) -> int:
        """Of what no pool was given for good, all but the `slots` oldest, less those that are taken by what it was.

        What was said by `now_s` is known.
        """
        with self._lock:
            unclaimed = self._books.unclaimed()
            free = max(0, slots - (len(self._books) - len(unclaimed)))
            # What a busy process did not start in time will not be started, however many slots are free.
            late = [held for held in unclaimed[:free] if held.start_by_s is not None]
            back = [held for held in late + unclaimed[free:] if not held.may_start(now_s)]
            return self._release([held for held in back if now_s - held.taken_s > longer_than_s])

    def release_forgotten(self) -> int:
        """What nobody will start any more, it seems. If somebody does, he asks Redis first: its first lease is over."""
        with self._lock:
            return self._release(self._books.forgotten(clock.now_s(), self.lease_s))

    def bury(self, tag: str, problem: dict[str, Any]) -> None:
        with self._lock:
            held = self._books.forget_valid(tag)
            if held is not None:
                self._outbox.untold.burials.append((held.id, held.fence, problem))

    def terminate(self, tag: str, problem: dict[str, Any]) -> Terminating:
        with self._lock:
            held = self._books.valid(tag)
            if held is None:
                return Terminating.ENDED
            held.verdict = problem
            if held.claimed_s is not None or held.may_start(clock.now_s()):
                return Terminating.RUNS
            self._books.forget(tag)
            self._give_back(held)
            return Terminating.BURIED

    def evict(self, tag: str, delay_ms: int | None, problem: dict[str, Any] | None) -> bool:
        with self._lock:
            held = self._books.valid(tag)
            if held is None:
                return False
            self._outbox.untold.times.ended(held, clock.now_s())
            self._books.lose(held)
            if problem is None:
                self._outbox.untold.releases.append((held.id, held.fence, False))
            elif delay_ms is None:
                self._outbox.untold.burials.append((held.id, held.fence, problem))
            else:
                self._outbox.untold.retries.append((held.id, held.fence, delay_ms, problem))
            return True

    # -- the lease keeper

    def leases(self) -> list[Lease]:
        """What to renew: all that is held, and what is done but not yet settled."""
        with self._lock:
            return self._leases()

    def ours(self) -> list[str]:
        """The ids of all that Redis may rightly believe to be leased to us."""
        with self._lock:
            return [*(message_id for message_id, _ in self._leases()), *self._outbox.given_up()]

    def renewed(self, leases: list[Lease], lost: list[str], asked_s: float) -> list[str]:
        """Enter the answer to a renewal; returns those lost while they run here. Most others were settled meanwhile."""
        gone = set(lost)
        running = []
        with self._lock:
            for message_id, fence in leases:
                held = self._books.held.get(tag_of(message_id, fence))
                if held is None:
                    continue
                if message_id not in gone:
                    held.deadline_s = asked_s + self.lease_s
                elif held.is_started:
                    self._books.lose(held)
                    self._outbox.untold.times.lost(held)
                    running.append(message_id)
                else:
                    self._books.forget(held.tag)
        return running

    def to_keeper(self) -> Untold:
        """All that Redis has not been told. It stays known until `told` or `put_back`."""
        with self._lock:
            return self._outbox.to_keeper()

    def everything_untold(self) -> Untold:
        """As to_keeper, with what is on its way to Redis: for a last word that nobody answers."""
        with self._lock:
            return self._outbox.everything()

    def told(self) -> None:
        with self._lock:
            self._outbox.told()

    def put_back(self) -> None:
        with self._lock:
            self._outbox.put_back()

    def has_untold(self) -> bool:
        return self.has_settles() or self.has_urgent()

    def has_settles(self) -> bool:
        return bool(self._outbox.untold.settles)

    def has_urgent(self) -> bool:
        """Whether there is something to tell that no turn takes along."""
        return self._outbox.untold.is_urgent

    def has_times(self) -> bool:
        return bool(self._outbox.untold.times)

    def has_unclaimed(self) -> bool:
        with self._lock:
            return bool(self._books.unclaimed())

    def _begin(self, held: Held, at_s: float) -> None:
        if not held.is_started:
            held.started_s = at_s
            held.claimed_s = at_s if held.claimed_s is None else held.claimed_s
            self._outbox.untold.times.began(held, at_s)

    def _leases(self) -> list[Lease]:
        return [*self._books.leases(), *self._outbox.done()]

    def _release(self, back: list[Held]) -> int:
        """Uncounted: none of them has started."""
        for held in back:
            self._books.forget(held.tag)
            self._give_back(held)
        return len(back)

    def _give_back(self, held: Held, *, died: bool = False) -> None:
        if held.verdict is not None:
            self._outbox.untold.burials.append((held.id, held.fence, held.verdict))
        else:
            self._outbox.untold.releases.append((held.id, held.fence, died))


def _held(new: Leased, asked_s: float, deadline_s: float, now_s: float) -> Held:
    """What Redis said of the past was true no earlier than `asked_s`."""
    return Held(
        new.id,
        new.fence,
        new.queue,
        new.died,
        deadline_s,
        now_s,
        appended_s=asked_s - new.waited_s if new.is_first else None,
        alive_s=None if new.alive_s is None else asked_s - new.alive_s,
    )
