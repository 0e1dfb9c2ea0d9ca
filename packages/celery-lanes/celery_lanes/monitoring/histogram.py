"""Histograms of times, as read from Redis. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from celery_lanes.leases import BOUNDS_S, LONGER, LOST, SUM

_PLACES = {name: place for place, name in enumerate((*map(str, BOUNDS_S), LONGER))}


def _empty() -> list[int]:
    return [0] * len(_PLACES)


@dataclass
class Histogram:
    """`buckets`: the count of each bucket; the last one counts times above the last of BOUNDS_S."""

    buckets: list[int] = field(default_factory=_empty)
    sum_s: float = 0.0

    def since(self, earlier: Histogram) -> Histogram:
        """The difference to an earlier histogram."""
        buckets = [now - then for now, then in zip(self.buckets, earlier.buckets, strict=True)]
        return Histogram(buckets, self.sum_s - earlier.sum_s)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """(upper bound, how many took at most that long), as in Prometheus."""
        return zip(_PLACES, accumulate(self.buckets), strict=True)

    def median_s(self) -> float | None:
        """The estimated median: times are assumed to be evenly distributed in a bucket. None if there are none."""
        half = sum(self.buckets) / 2
        lower_s, before = 0.0, 0
        for upper_s, n in zip((*BOUNDS_S, BOUNDS_S[-1]), self.buckets, strict=True):
            if n > 0 and before + n >= half:
                return lower_s + (upper_s - lower_s) * (half - before) / n
            lower_s, before = upper_s, before + n
        return None


def read_times(fields: Mapping[str, int]) -> dict[tuple[str, str], Histogram]:
    """(WAIT, RUN or RECOVERY, group) -> histogram, from the fields of keys.TIMES. Skips bounds of other versions."""
    found: dict[tuple[str, str], Histogram] = {}
    for name, n in fields.items():
        what, bound, group = name.split(" ", 2)
        if what == LOST:
            continue
        histogram = found.setdefault((what, group), Histogram())
        if bound == SUM:
            histogram.sum_s = n / 1e6
        elif bound in _PLACES:
            histogram.buckets[_PLACES[bound]] += n
    return found
