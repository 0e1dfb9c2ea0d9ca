"""Wait, run and recovery times, counted in histogram buckets until they are sent to Redis.

Guarantees that the cost of a measurement does not grow with their number, and that Redis adds up the
times that all workers send. Does not guarantee that a killed worker has sent its last second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from functools import cache

from celery_lanes.protocol.keys import group_of

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
    """Field of keys.TIMES -> count, or µs."""

    def note(self, what: str, queue: str, seconds: float) -> None:
        names = _fields(what, queue)
        self[names[bisect_left(BOUNDS_S, seconds)]] += 1
        self[names[-1]] += max(0, round(seconds * 1_000_000))

    def lost(self, queue: str) -> None:
        """Count a message that lost its lease while it ran."""
        self[field(LOST, RUNS, group_of(queue))] += 1


@cache
def _fields(what: str, queue: str) -> tuple[str, ...]:
    group = group_of(queue)
    return tuple(field(what, name, group) for name in (*map(str, BOUNDS_S), LONGER, SUM))


def field(what: str, bound: str, group: str) -> str:
    return f"{what} {bound} {group}"
