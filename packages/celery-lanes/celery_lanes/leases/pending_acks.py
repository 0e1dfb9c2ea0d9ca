"""Acks that Redis has not answered yet: settles, releases, burials, retries, and measured times.

Guarantees that each ack stays here until Redis has answered it, whether a fetch or the background thread sends it.
Otherwise a reconcile would release its message as one that was never received, and it would run again. If the process
dies, the acks are lost: the leases expire and the messages run again. The times of its last second may be lost, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from celery_lanes.protocol import Command, verbs
from celery_lanes.protocol.keys import group_of
from celery_lanes.runtime import clock

#: Upper bounds of the buckets, seconds: from a quick handler to the slowest that a user waits for; closer together
#: around the lease of 15 s, because recovery takes slightly longer than that.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 60, 120, 300, 600)
#: The bucket above the last bound; and the name under which the sum of all times is kept, in µs.
LONGER, SUM = "+Inf", "sum"

#: From the append, or the replay, until the handler starts. First runs only.
WAIT = "wait"
#: From the start of a handler until its end, whatever the outcome.
RUN = "run"
#: From when a worker that died was last known to be alive until the handler of its message starts again.
RECOVERY = "recovery"
#: Not a time: the number of runs that lost their lease before they ended.
LOST, RUNS = "lost", "runs"


class Times(Counter[str]):
    """Field of keys.TIMES -> count, or µs: the buckets of histograms, in which Redis adds up those of all workers."""

    def note(self, what: str, queue: str, seconds: float) -> None:
        names = _fields(what, queue)
        self[names[bisect_left(BOUNDS_S, seconds)]] += 1
        self[names[-1]] += max(0, round(seconds * 1_000_000))

    def lost(self, queue: str) -> None:
        """Count a message that lost its lease while it ran."""
        self[times_field(LOST, RUNS, group_of(queue))] += 1


@cache
def _fields(what: str, queue: str) -> tuple[str, ...]:
    group = group_of(queue)
    return tuple(times_field(what, name, group) for name in (*map(str, BOUNDS_S), LONGER, SUM))


def times_field(what: str, bound: str, group: str) -> str:
    return f"{what} {bound} {group}"


Lease = tuple[str, str]  # (message id, fence)

#: A worker sends its times at most this often, seconds. Times measured in between are added up at no extra cost.
TIMES_EVERY_S = 0.1


@dataclass
class AckBatch:
    """Acks by kind, each kind in the order in which it was queued."""

    settles: deque[Lease] = field(default_factory=deque)
    # id, fence, whether its process died, whether it had started or may have
    releases: deque[tuple[str, str, bool, bool]] = field(default_factory=deque)
    burials: deque[tuple[str, str, dict[str, Any]]] = field(default_factory=deque)  # id, fence, problem
    retries: deque[tuple[str, str, int, dict[str, Any]]] = field(
        default_factory=deque
    )  # id, fence, delay in ms, problem
    times: Times = field(default_factory=Times)

    @property
    def is_urgent(self) -> bool:
        """True if it has acks that a fetch does not carry."""
        return bool(self.releases or self.burials or self.retries)

    def commands(self, *, holder: str, lease_ms: int) -> Iterator[Command[Any]]:
        """The commands that send them. To send one twice is harmless: it is refused, because its fence is old."""
        if self.settles or self.times:
            yield verbs.turn([], holder=holder, lease_ms=lease_ms, room=0, settles=list(self.settles), times=self.times)
        for died, started in ((False, False), (False, True), (True, True)):
            leases = [(message_id, fence) for message_id, fence, *how in self.releases if how == [died, started]]
            if leases:
                yield verbs.release(leases, died=died, started=started)
        for message_id, fence, problem in self.burials:
            yield verbs.bury(message_id, fence, problem)
        for message_id, fence, delay_ms, problem in self.retries:
            yield verbs.retry(message_id, fence, delay_ms=delay_ms, problem=problem)

    def unheld_ids(self) -> list[str]:
        """The ids of all messages released, buried or retried."""
        ids = [message_id for message_id, *_ in self.releases]
        ids += [message_id for message_id, *_ in self.burials]
        return ids + [message_id for message_id, *_ in self.retries]

    def prepend_to(self, later: AckBatch) -> None:
        later.settles.extendleft(reversed(self.settles))
        later.releases.extendleft(reversed(self.releases))
        later.burials.extendleft(reversed(self.burials))
        later.retries.extendleft(reversed(self.retries))
        later.times.update(self.times)


class PendingAcks:
    """The acks of one in-flight table, protected by its lock.

    The table holds the lock when it adds to `queued` or calls a method of the section that says so. The other methods
    take the lock themselves.
    """

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.queued = AckBatch()
        self._flushing = AckBatch()  # sent by the background thread, not yet answered
        self._fetching = AckBatch()  # settles and times sent with a fetch, not yet answered
        self._next_times_s = 0.0

    # -- with the lock held

    def settles(self) -> list[Lease]:
        """Every settle that Redis may not have received."""
        return [*self.queued.settles, *self._flushing.settles, *self._fetching.settles]

    def unheld_ids(self) -> list[str]:
        """The ids of every release, burial and retry that Redis may not have received."""
        return [*self.queued.unheld_ids(), *self._flushing.unheld_ids()]

    def fetch_answered(self) -> None:
        self._fetching = AckBatch()

    # -- a fetch carries settles and times

    def start_fetch(self) -> list[Lease]:
        """The settles to send. They stay here until `fetch_answered` or `fetch_failed`."""
        with self._lock:
            self._fetching.settles, self.queued.settles = self.queued.settles, deque()
            return list(self._fetching.settles)

    def times_to_fetch(self) -> Times:
        """The times to send with the fetch; empty if some were sent less than TIMES_EVERY_S ago."""
        now_s = clock.now_s()
        with self._lock:
            if now_s >= self._next_times_s:
                self._next_times_s = now_s + TIMES_EVERY_S
                self._fetching.times, self.queued.times = self.queued.times, Times()
            return self._fetching.times

    def fetch_failed(self) -> None:
        """Settles and times are sent again. Settling twice is harmless; times may be counted twice."""
        with self._lock:
            self._fetching.prepend_to(self.queued)
            self._fetching = AckBatch()

    # -- the background thread carries everything

    def start_flush(self) -> AckBatch:
        """All that is queued. It stays here until `flush_answered` or `flush_failed`."""
        with self._lock:
            self._flushing, self.queued = self.queued, AckBatch()
            return self._flushing

    def flush_answered(self) -> None:
        with self._lock:
            self._flushing = AckBatch()

    def flush_failed(self) -> None:
        with self._lock:
            self._flushing.prepend_to(self.queued)
            self._flushing = AckBatch()

    def everything(self) -> AckBatch:
        """All acks that Redis may not have received, sent or not: for a last send without waiting for an answer."""
        with self._lock:
            flushing, queued = self._flushing, self.queued
            return AckBatch(
                settles=deque(self.settles()),
                releases=flushing.releases + queued.releases,
                burials=flushing.burials + queued.burials,
                retries=flushing.retries + queued.retries,
            )

    # -- queue state, read without the lock: it may change right after the read in any case

    def has_any(self) -> bool:
        return self.has_settles() or self.has_urgent()

    def has_settles(self) -> bool:
        return bool(self.queued.settles)

    def has_urgent(self) -> bool:
        return self.queued.is_urgent

    def has_times(self) -> bool:
        return bool(self.queued.times)
