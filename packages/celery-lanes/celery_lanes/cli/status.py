"""`lanes status`: shows the backlog per group, queue and state, and the messages that others wait for."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import click

from celery_lanes.cli.context import Context, command
from celery_lanes.cli.formatting import MOST_OF_A_TITLE, age, bar, duration, echo, moment, number, one_line, table
from celery_lanes.cli.group import FiniteRange
from celery_lanes.leases import RUN, WAIT
from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Histogram, Record, WaitingTimers
from celery_lanes.words import NEUTRAL, Words

#: The most messages that are examined one by one, so that the command answers quickly. Others are only counted.
MOST_EXAMINED = 50_000
#: The time between the two samples that a rate is computed from.
RATE_OVER_S = 1.0
BAR = 20
#: The most characters shown of the reason why a message was parked.
MOST_OF_A_REASON = 160


STATES = ("held", "waiting", "collecting", "gated", "ready", "leased", "delayed", "buried")
#: The number of busiest lanes that are shown.
MOST_LANES = 10


@dataclass
class Figures:
    """The figures of a group or of one of its queues. `oldest_us`: when its oldest message was appended; None: none."""

    states: Counter[str] = field(default_factory=Counter)
    oldest_us: int | None = None
    #: Further messages that were only counted, because there are too many to examine each.
    more: int = 0
    #: Messages settled per second, once two samples have been compared.
    rate: float | None = None
    #: Medians over the same time, only for a group; None: no handler started, or ended.
    wait_s: float | None = None
    run_s: float | None = None

    @property
    def backlog(self) -> int:
        return sum(self.states.values()) - self.states["buried"] + self.more

    def add(self, record: Record) -> None:
        self.states[record.state] += 1
        if record.state != "buried":
            self.oldest_us = min(record.appended_us, self.oldest_us or record.appended_us)

    def as_json(self, now_us: int) -> dict[str, Any]:
        oldest_s = None if self.oldest_us is None else round((now_us - self.oldest_us) / 1e6, 3)
        states = {state: self.states[state] for state in STATES}
        return {"backlog": self.backlog, **states, "not_looked_at": self.more, "oldest_s": oldest_s, "rate": self.rate}


@dataclass
class BusyLane:
    """A lane with several messages, of which the others wait for `first`; or a limit, and the first that is gated."""

    lane: str
    waiting: int
    first: Record
    title: str = ""


@dataclass
class Overview:
    """The figures at one moment; `now_us` is Redis' clock."""

    now_us: int
    groups: dict[str, Figures]
    queues: dict[str, dict[str, Figures]]
    busy_lanes: list[BusyLane]
    #: Paused lane, queue or group -> since when, ms (inspection.paused).
    paused: dict[str, int] = field(default_factory=dict)
    #: Of a package that builds on lanes: lines, and their JSON.
    notices: tuple[list[str], dict[str, Any]] = field(default_factory=lambda: ([], {}))
    timers: WaitingTimers = field(default_factory=WaitingTimers)
    words: Words = NEUTRAL


def overview(
    now_us: int, records: Iterable[Record], names: Mapping[str, str], queues: Iterable[tuple[str, str]]
) -> Overview:
    """`names`: queue group -> display name. `queues`: (group, queue) of each queue that is shown even when empty."""
    groups = {name: Figures() for name in names.values()}
    by_queue: dict[str, dict[str, Figures]] = {name: {} for name in groups}
    for group, queue in queues:
        by_queue[names.get(group, group)][queue] = Figures()
    lanes: Counter[str] = Counter()
    limits: Counter[str] = Counter()
    firsts: dict[str, Record] = {}
    first_gated: dict[str, Record] = {}
    for record in records:
        name = names.get(record.group, record.group)
        groups.setdefault(name, Figures()).add(record)
        by_queue.setdefault(name, {}).setdefault(record.queue, Figures()).add(record)
        if record.state != "buried":
            for key in record.lanes:
                lanes[key] += 1
                if key not in firsts or record.appended_us < firsts[key].appended_us:
                    firsts[key] = record
        for key in record.limits if record.state == "gated" else ():
            limits[key] += 1
            first_gated.setdefault(key, record)
    busy_lanes = [BusyLane(key, number - 1, firsts[key]) for key, number in lanes.most_common(MOST_LANES) if number > 1]
    busy_lanes += [BusyLane(key, number, first_gated[key]) for key, number in limits.most_common(MOST_LANES)]
    busy_lanes.sort(key=lambda lane: -lane.waiting)
    return Overview(now_us, groups, by_queue, busy_lanes[:MOST_LANES])


@command("status")
@click.option("--watch", is_flag=True, help="Repeat, with bars, until Ctrl-C.")
@click.option(
    "--every",
    "every_s",
    type=FiniteRange(0.2, 86_400),
    default=2.0,
    show_default=True,
    help="Seconds between two updates of --watch.",
)
@click.option("--now", is_flag=True, help="Answer at once, without rates, wait and run.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object; with --watch, one per line.")
def status(lanes: Context, watch: bool, every_s: float, now: bool, as_json: bool) -> None:
    """Show waiting, running and buried {message}s per {group} and queue, the busiest {lane}s, and why they wait.

    The states: held (until those with lower numbers have arrived), waiting (for others of a {lane}, or because it is
    paused), collecting (for others that join it, or for its rate), gated (for a limit), ready (for a worker), leased
    (to a worker), delayed (to be tried again), buried (a dead letter).
    """
    if now and not watch:
        show(collect(lanes), watch=False, as_json=as_json)
        return
    before = Totals.of(lanes)
    pause_s = RATE_OVER_S
    with suppress(KeyboardInterrupt):  # how --watch ends
        while True:
            time.sleep(pause_s)
            current = Totals.of(lanes)
            seen = collect(lanes)
            add_rates(seen, before.settled, current.settled)
            add_medians(seen, lanes, before, current)
            show(seen, watch=watch, as_json=as_json)
            if not watch:
                return
            before, pause_s = current, every_s


def collect(lanes: Context) -> Overview:
    client = lanes.client
    groups = sorted({*lanes.names, *inspection.groups(client)})
    each = {group: inspection.pending(client, group, MOST_EXAMINED // max(len(groups), 1)) for group in groups}
    ids = [*chain.from_iterable(each.values()), *list(inspection.dead(client))[:MOST_EXAMINED]]
    seen = overview(inspection.now_us(client), inspection.records(client, ids), lanes.names, lanes.queues)
    for group, found in each.items():
        figures = seen.groups.get(lanes.names.get(group, group))
        if figures is not None:
            figures.more = max(lanes.store.pending(group) - len(found), 0)
    titles = inspection.titles(client, [lane.first.id for lane in seen.busy_lanes], lanes.words.task)
    busy_lanes = [replace(lane, title=titles[lane.first.id]) for lane in seen.busy_lanes]
    return replace(
        seen,
        busy_lanes=busy_lanes,
        paused=inspection.paused(client),
        notices=lanes.notices(),
        words=lanes.words,
        timers=inspection.timers(client),
    )


def show(seen: Overview, *, watch: bool, as_json: bool) -> None:
    if as_json:
        echo(json.dumps(_as_json(seen), indent=None if watch else 2))
        return
    live = watch and sys.stdout.isatty()
    if live:
        click.clear()
    click.echo(figures_table(seen, bars=live))
    for what, since_ms in sorted(seen.paused.items()):
        echo(f"paused since {moment(since_ms)}: {what.replace(':', ' ', 1)}")
    for line in seen.notices[0]:
        echo(line)
    if seen.timers.due_s is not None:
        when = f"due in {age(seen.timers.due_s)}" if seen.timers.due_s > 0 else f"late by {age(seen.timers.late_s)}"
        echo(f"timers: {seen.timers.waiting:,} wait, the next one is {when}")
    for name, figures in seen.groups.items():
        if figures.more:
            newest = f"{figures.more:,} {seen.words.message}s"
            echo(f"{name}: the newest {newest} are counted in the backlog only, not by state")
    if seen.busy_lanes:
        click.echo()
        click.echo(busy_lanes_table(seen))


def figures_table(seen: Overview, *, bars: bool) -> str:
    """One row per group, and one per queue that is not empty."""
    most = max((figures.backlog for figures in seen.groups.values()), default=0) or 1
    rows = []
    for name, total in seen.groups.items():
        medians = [duration(total.wait_s), duration(total.run_s)]
        rows.append([name, "", *_cells(seen, total), *medians, *([bar(total.backlog / most, BAR)] if bars else [])])
        for queue, figures in seen.queues[name].items():
            if figures.backlog or figures.states["buried"] or figures.rate:
                shown = [bar(figures.backlog / most, BAR)] if bars else []
                rows.append(["", queue, *_cells(seen, figures), "", "", *shown])
    head = [seen.words.group, "queue", "backlog", *STATES, "oldest", "rate/s", "wait", "run", *([""] if bars else [])]
    return table(head, rows, left=(0, 1, len(head) - 1) if bars else (0, 1))


def _cells(seen: Overview, figures: Figures) -> list[str]:
    oldest_s = None if figures.oldest_us is None else (seen.now_us - figures.oldest_us) / 1e6
    states = [number(figures.states[state]) for state in STATES]
    return [number(figures.backlog), *states, age(oldest_s), number(figures.rate)]


def busy_lanes_table(seen: Overview) -> str:
    rows = []
    for lane in seen.busy_lanes:
        named = one_line(lane.title, MOST_OF_A_TITLE) or lane.first.id  # no title: it has been settled meanwhile
        rows.append(
            [lane.lane, number(lane.waiting), f"{named}: {doing(lane.first, seen.now_us, seen.paused, seen.words)}"]
        )
    return table(["lane", "waiting", "for"], rows, left=(0, 2))


def doing(first: Record, now_us: int, paused: Container[str], words: Words) -> str:
    """The state of a lane's first message as text: where, and since when. `paused`: the result of inspection.paused."""
    since = age((now_us - (first.moved_us or first.appended_us)) / 1e6)
    again = f", attempt {first.attempt}" if first.attempt > 1 else ""
    if first.state == "leased":
        return f"runs on {worker_of(first.holder)} for {since}{again}"
    if any(what in paused for what in (*first.in_lanes, f"queue:{first.queue}", f"group:{first.group}")):
        return f"paused; waiting for {since}{again}"
    if first.state == "delayed":
        if first.is_paced and not (first.failed or first.parked):
            return f"waits for its rate for {since}{again}"
        why = f": {' '.join(first.parked.split())[:MOST_OF_A_REASON]}" if first.parked else ""
        return f"delayed {since} ago{again}{why}"
    if first.state == "gated":
        return f"waits for its limit {', '.join(first.limits)} for {since}{again}"
    if first.state == "held":
        return f"held for {since}: {words.a_message} before it may still arrive"
    if first.state == "collecting" and first.has_turn:
        return f"over its rate: waits for its turn for {since}"
    if first.state == "collecting":
        return f"collected for {since}: further {words.message}s may follow"
    if first.state == "ready":
        return f"ready for {since}{again}"
    return f"waits for another lane for {since}{again}"


def worker_of(holder: str) -> str:
    """`host:pid` of a worker's main process."""
    return ":".join(holder.split(":")[:2])


def _as_json(seen: Overview) -> dict[str, Any]:
    groups = {
        name: {
            **figures.as_json(seen.now_us),
            "wait_median_s": figures.wait_s,
            "run_median_s": figures.run_s,
            "queues": {queue: each.as_json(seen.now_us) for queue, each in seen.queues[name].items()},
        }
        for name, figures in seen.groups.items()
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
        f"{seen.words.group}s": groups,
        "lanes": lanes_,
        "paused_since_ms": seen.paused,
        **seen.notices[1],
        "timers": {"waiting": seen.timers.waiting, "late_s": round(seen.timers.late_s, 3)},
    }


# -- rates, from two samples. Results that a worker has not yet written to Redis are not included.


@dataclass(frozen=True)
class Totals:
    """A sample of counters that only grow. The difference of two samples gives the rates."""

    settled: inspection.Settled
    times: dict[tuple[str, str], Histogram]

    @classmethod
    def of(cls, lanes: Context) -> Totals:
        return cls(inspection.settled(lanes.client), inspection.times(lanes.client))

    def median_s(self, what: str, group: str, earlier: Totals) -> float | None:
        total = self.times.get((what, group), Histogram())
        return total.since(earlier.times.get((what, group), Histogram())).median_s()


def add_rates(seen: Overview, before: inspection.Settled, now: inspection.Settled) -> None:
    seconds = max(now.at_us - before.at_us, 1) / 1e6
    for name, queues in seen.queues.items():
        for queue, figures in queues.items():
            figures.rate = round((now.by_queue.get(queue, 0) - before.by_queue.get(queue, 0)) / seconds, 1)
        seen.groups[name].rate = round(sum(figures.rate or 0.0 for figures in queues.values()), 1)


def add_medians(seen: Overview, lanes: Context, before: Totals, now: Totals) -> None:
    for group, name in lanes.names.items():
        figures = seen.groups[name]
        figures.wait_s, figures.run_s = (now.median_s(what, group, before) for what in (WAIT, RUN))
