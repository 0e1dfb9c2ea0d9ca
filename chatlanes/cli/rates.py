"""Rates between two samples: settled updates per second, median wait and run times.

A sample reads two keys. Results that a worker has not yet written to Redis are not included.
"""

from __future__ import annotations

from dataclasses import dataclass

from chatlanes.cli.command import CommandContext
from chatlanes.cli.overview import Overview
from chatlanes.lanes.leases.timings import RUN, WAIT
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.monitoring.histogram import Histogram


@dataclass(frozen=True)
class Totals:
    """A sample of counters that only grow. The difference of two samples gives the rates."""

    settled: inspection.Settled
    times: dict[tuple[str, str], Histogram]

    @classmethod
    def of(cls, lanes: CommandContext) -> Totals:
        return cls(inspection.settled(lanes.client), inspection.times(lanes.client))

    def median_s(self, what: str, group: str, earlier: Totals) -> float | None:
        total = self.times.get((what, group), Histogram())
        return total.since(earlier.times.get((what, group), Histogram())).median_s()


def add_rates(seen: Overview, before: inspection.Settled, now: inspection.Settled) -> None:
    seconds = max(now.at_us - before.at_us, 1) / 1e6
    for bot, queues in seen.queues.items():
        for queue, figures in queues.items():
            figures.rate = round((now.by_queue.get(queue, 0) - before.by_queue.get(queue, 0)) / seconds, 1)
        seen.bots[bot].rate = round(sum(figures.rate or 0.0 for figures in queues.values()), 1)


def add_medians(seen: Overview, lanes: CommandContext, before: Totals, now: Totals) -> None:
    for group, bot in lanes.names.items():
        figures = seen.bots[bot]
        figures.wait_s, figures.run_s = (now.median_s(what, group, before) for what in (WAIT, RUN))
