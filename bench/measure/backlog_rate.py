"""Waits for a backlog to shrink, and measures how fast it does.

Polls rarely, so that polling costs almost nothing, and gives up after a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.measure.figures import steady_rate
from bench.measure.harness import BenchFailedError, BenchProcess

POLL_EVERY_S = 0.02
#: Longer than a worker takes to start on a busy machine.
STALLED_AFTER_S = 90.0

Count = Callable[[], int]


def until(condition: Callable[[], bool], children: Sequence[BenchProcess], what: str) -> None:
    """Returns when the condition holds. Raises BenchFailedError if it does not hold in time."""
    give_up_at_s = time.monotonic() + STALLED_AFTER_S
    while not condition():
        for child in children:
            child.check()
        if time.monotonic() > give_up_at_s:
            raise BenchFailedError(f"timed out: {what}")
        time.sleep(POLL_EVERY_S)


def measure(left: Count, total: int, children: Sequence[BenchProcess], *, to_the_end: bool = True) -> float:
    """Messages per second while a backlog of `total` is processed.

    Returns when none is left, or, without `to_the_end`, as soon as the rate is known.
    """
    samples: list[tuple[float, int]] = []
    rate = None

    def has_moved_on() -> bool:
        before = samples[-1][1] if samples else total + 1
        samples.append((time.monotonic(), left()))
        return samples[-1][1] == 0 or samples[-1][1] < before

    while rate is None or (to_the_end and samples[-1][1]):
        until(has_moved_on, children, f"{samples[-1][1] if samples else total} of {total} are left")
        rate = steady_rate(samples, total)
        time.sleep(POLL_EVERY_S)
    return rate
