"""`lanes status`: shows the backlog per bot, queue and state, and the updates that others wait for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Container
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import click

from chatlanes.cli.command import CommandContext, command
from chatlanes.cli.formatting import age, bar, duration, echo, moment, number, table
from chatlanes.cli.overview import STATES, Figures, Overview, TelegramPause, overview
from chatlanes.lanes.leases.timings import RUN, WAIT
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.monitoring.histogram import Histogram
from chatlanes.lanes.monitoring.inspection import Record

#: The most updates that are examined one by one, so that the command answers quickly. Others are only counted.
MOST_EXAMINED = 50_000
#: The time between the two samples that a rate is computed from.
RATE_OVER_S = 1.0
BAR = 20
#: The most characters shown of the reason why an update was parked.
MOST_OF_A_REASON = 160


@command("status")
@click.option("--watch", is_flag=True, help="Repeat, with bars, until Ctrl-C.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.2),
    default=2.0,
    show_default=True,
    help="Seconds between two updates of --watch.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --watch, one per line.")
def status(lanes: CommandContext, watch: bool, every_s: float, as_json: bool) -> None:
    """Show waiting, running and buried updates per bot and queue, the busiest chats, and the reason why they wait."""
    before = Totals.of(lanes)
    pause_s = RATE_OVER_S
    with suppress(KeyboardInterrupt):  # how --watch ends
        while True:
            time.sleep(pause_s)
            now = Totals.of(lanes)
            seen = collect(lanes)
            add_rates(seen, before.settled, now.settled)
            add_medians(seen, lanes, before, now)
            show(seen, watch=watch, as_json=as_json)
            if not watch:
                return
            before, pause_s = now, every_s


def collect(lanes: CommandContext) -> Overview:
    client = lanes.client
    groups = sorted({*lanes.names, *inspection.groups(client)})
    each = {group: inspection.pending(client, group, MOST_EXAMINED // max(len(groups), 1)) for group in groups}
    ids = [*chain.from_iterable(each.values()), *list(inspection.dead(client))[:MOST_EXAMINED]]
    seen = overview(inspection.now_us(client), inspection.records(client, ids), lanes.names, lanes.queues)
    for group, found in each.items():
        figures = seen.bots.get(lanes.names.get(group, group))
        if figures is not None:
            figures.more = max(lanes.store.pending(group) - len(found), 0)
    titles = inspection.titles(client, [lane.first.id for lane in seen.busy_lanes])
    busy_lanes = [replace(lane, title=titles[lane.first.id]) for lane in seen.busy_lanes]
    return replace(
        seen,
        busy_lanes=busy_lanes,
        paused=inspection.paused(client),
        flood_waits=flood_waits(lanes),
        timers=inspection.timers(client),
    )


def flood_waits(lanes: CommandContext) -> list[TelegramPause]:
    """The flood pauses of the bots whose tokens are known here."""
    if not lanes.bot_ids:
        return []
    # Imported only if there are bots, so that other apps need not load it.
    from chatlanes.telegram.flood import flood_pauses

    return [
        TelegramPause(name, pause.what, round(pause.left_s, 1))
        for bot_id, name in lanes.bot_ids.items()
        for pause in flood_pauses(lanes.client, bot_id)
    ]


def show(seen: Overview, *, watch: bool, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(_as_json(seen), indent=None if watch else 2))
        return
    live = watch and sys.stdout.isatty()
    if live:
        click.clear()
    click.echo(figures_table(seen, bars=live))
    for what, since_ms in sorted(seen.paused.items()):
        echo(f"paused since {moment(since_ms)}: {what.replace(':', ' ', 1)}")
    for wait in seen.flood_waits:
        echo(f"flood wait: {wait.what} waits for {age(wait.left_s)} more ({wait.bot})")
    if seen.timers.due_s is not None:
        when = f"due in {age(seen.timers.due_s)}" if seen.timers.due_s > 0 else f"late by {age(seen.timers.late_s)}"
        echo(f"timers: {seen.timers.waiting:,} wait, the next one is {when}")
    for bot, figures in seen.bots.items():
        if figures.more:
            echo(f"{bot}: the newest {figures.more:,} updates are counted in the backlog only, not by state")
    if seen.busy_lanes:
        click.echo()
        click.echo(busy_lanes_table(seen))


def figures_table(seen: Overview, *, bars: bool) -> str:
    """One row per bot, and one per queue that is not empty."""
    most = max((figures.backlog for figures in seen.bots.values()), default=0) or 1
    rows = []
    for bot, total in seen.bots.items():
        medians = [duration(total.wait_s), duration(total.run_s)]
        rows.append([bot, "", *_cells(seen, total), *medians, *([bar(total.backlog / most, BAR)] if bars else [])])
        for queue, figures in seen.queues[bot].items():
            if figures.backlog or figures.states["buried"] or figures.rate:
                shown = [bar(figures.backlog / most, BAR)] if bars else []
                rows.append(["", queue, *_cells(seen, figures), "", "", *shown])
    head = ["bot", "queue", "backlog", *STATES, "oldest", "rate/s", "wait", "run", *([""] if bars else [])]
    return table(head, rows, left=(0, 1, len(head) - 1) if bars else (0, 1))


def _cells(seen: Overview, figures: Figures) -> list[str]:
    oldest_s = None if figures.oldest_us is None else (seen.now_us - figures.oldest_us) / 1e6
    states = [number(figures.states[state]) for state in STATES]
    return [number(figures.backlog), *states, age(oldest_s), number(figures.rate)]


def busy_lanes_table(seen: Overview) -> str:
    rows = []
    for lane in seen.busy_lanes:
        named = lane.title or lane.first.id  # no title: it has been settled meanwhile
        rows.append([lane.lane, number(lane.waiting), f"{named}: {doing(lane.first, seen.now_us, seen.paused)}"])
    return table(["lane", "waiting", "for"], rows, left=(0, 2))


def doing(first: Record, now_us: int, paused: Container[str]) -> str:
    """What the first update of a lane is doing, where, and since when. `paused`: the result of inspection.paused."""
    since = age((now_us - (first.moved_us or first.appended_us)) / 1e6)
    again = f", attempt {first.attempt}" if first.attempt > 1 else ""
    if first.state == "leased":
        return f"runs on {worker_of(first.holder)} for {since}{again}"
    if any(what in paused for what in (*first.in_lanes, f"queue:{first.queue}", f"group:{first.group}")):
        return f"paused; waiting for {since}{again}"
    if first.state == "delayed":
        why = f": {' '.join(first.parked.split())[:MOST_OF_A_REASON]}" if first.parked else ""
        return f"delayed {since} ago{again}{why}"
    if first.state == "held":
        return f"held for {since}: an update before it may still arrive"
    if first.state == "collecting":
        return f"collected for {since}: further updates may follow"
    if first.state == "ready":
        return f"ready for {since}{again}"
    return f"waits for another lane for {since}{again}"


def worker_of(holder: str) -> str:
    """`host:pid` of a worker's main process."""
    return ":".join(holder.split(":")[:2])


def _as_json(seen: Overview) -> dict[str, Any]:
    bots = {
        bot: {
            **figures.as_json(seen.now_us),
            "wait_median_s": figures.wait_s,
            "run_median_s": figures.run_s,
            "queues": {queue: each.as_json(seen.now_us) for queue, each in seen.queues[bot].items()},
        }
        for bot, figures in seen.bots.items()
    }
    lanes_ = [
        {
            "lane": lane.lane,
            "waiting": lane.waiting,
            "first": {
                "id": lane.first.id,
                "title": lane.title,
                "state": lane.first.state,
                "worker": worker_of(lane.first.holder) or None,
                "since_s": round((seen.now_us - (lane.first.moved_us or lane.first.appended_us)) / 1e6, 3),
                "attempt": lane.first.attempt,
            },
        }
        for lane in seen.busy_lanes
    ]
    return {
        "bots": bots,
        "lanes": lanes_,
        "paused_since_ms": seen.paused,
        "flood_waits": [wait._asdict() for wait in seen.flood_waits],
        "timers": {"waiting": seen.timers.waiting, "late_s": round(seen.timers.late_s, 3)},
    }


# -- rates, from two samples. Results that a worker has not yet written to Redis are not included.


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
