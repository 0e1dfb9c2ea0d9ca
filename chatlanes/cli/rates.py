"""What went on between two moments: how many a second were settled, how long updates waited and ran.

Promises that a glance reads two keys. Knows only what grows in Redis: what a worker has not told yet is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from chatlanes.cli.command import Lanes
from chatlanes.cli.overview import Overview
from chatlanes.lanes.leases.timings import RUN, WAIT
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.monitoring.histogram import Histogram


@dataclass(frozen=True)
class Glance:
    """What only grows: two of them tell what went on between them."""

    settled: inspection.Settled
    times: dict[tuple[str, str], Histogram]

    @classmethod
    def of(cls, lanes: Lanes) -> Glance:
        return cls(inspection.settled(lanes.client), inspection.times(lanes.client))

    def median_s(self, what: str, group: str, earlier: Glance) -> float | None:
        ever = self.times.get((what, group), Histogram())
        return ever.since(earlier.times.get((what, group), Histogram())).median_s()


def add_rates(seen: Overview, before: inspection.Settled, now: inspection.Settled) -> None:
    seconds = max(now.at_us - before.at_us, 1) / 1e6
    for bot, queues in seen.queues.items():
        for queue, figures in queues.items():
            figures.rate = round((now.by_queue.get(queue, 0) - before.by_queue.get(queue, 0)) / seconds, 1)
        seen.bots[bot].rate = round(sum(figures.rate or 0.0 for figures in queues.values()), 1)


def add_medians(seen: Overview, lanes: Lanes, before: Glance, now: Glance) -> None:
    for group, bot in lanes.names.items():
        figures = seen.bots[bot]
        figures.wait_s, figures.run_s = (now.median_s(what, group, before) for what in (WAIT, RUN))
