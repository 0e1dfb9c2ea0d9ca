"""`lanes lane`: shows one lane: its messages, the calls of its first one, and its timers."""

from __future__ import annotations

import click

from celery_lanes.cli.context import Context, OfLane, command, lane_argument, wanted, with_size
from celery_lanes.cli.formatting import age, echo, moment, table
from celery_lanes.cli.status import doing
from celery_lanes.cli.timers import shown
from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Record
from celery_lanes.protocol import StoredTimer

#: The most messages shown of each lane.
MOST_SHOWN = 20
#: The most timers shown, the next ones.
MOST_TIMERS = 5


@command("{lane}", cls=OfLane)
@lane_argument
def lane(lanes: Context, lane: str) -> None:
    """Show a lane by its key, such as {key}: its {message}s, what runs, its last errors, its timers."""
    paused = inspection.paused(lanes.client)
    is_there = inspection.in_lane(lanes.client, lane, 1)[1] > 0 or f"lane:{lane}" in paused
    if is_there:
        show_lane(lanes, lane, paused)
    buried, timers = buried_of(lanes, lane), lanes.timers_of(lane)
    if buried:
        echo(f"{len(buried)} buried: lanes dead list --{lanes.words.lane} {lane}")
    if timers:
        show_timers(lanes, lane, timers)
    if not (is_there or buried or timers):
        echo(f"{lane} has no waiting, running or buried {lanes.words.message}s and no timers")


def buried_of(lanes: Context, selected: str) -> list[Record]:
    is_wanted = wanted(lanes, selected, None)
    return [record for record in inspection.records(lanes.client, inspection.dead(lanes.client)) if is_wanted(record)]


def show_lane(lanes: Context, key: str, paused: dict[str, int]) -> None:
    paused_ms = paused.get(f"lane:{key}")
    client, now_us = lanes.client, inspection.now_us(lanes.client)
    ids, count = inspection.in_lane(client, key, MOST_SHOWN)
    standing = list(inspection.records(client, ids))
    titles = inspection.titles(client, [record.id for record in standing])
    echo(f"{key}: {count:,} in the lane" + (f", paused since {moment(paused_ms)}" if paused_ms else ""))
    rows = [
        [
            record.id,
            with_size(titles[record.id], record),
            doing(record, now_us, paused, lanes.words) if place == 0 else record.state,
        ]
        for place, record in enumerate(standing)
    ]
    if rows:
        click.echo(table(["id", lanes.words.message, "doing"], rows, left=range(3)))
    if count > len(ids):
        echo(f"and {count - len(ids):,} more")
    if standing:
        _show_first(lanes, standing[0])
    click.echo()


def _show_first(lanes: Context, first: Record) -> None:
    """The errors and journaled calls of its earlier attempts."""
    for problem in inspection.problems(lanes.client, first.id)[-3:]:
        run = f"{problem.get('type')}: {' '.join(str(problem.get('message', '')).split())}"
        echo(f"  failed {moment(problem.get('at_ms', 0))}: {run[:120]}")
    for position, state, what in inspection.journal(lanes.client, first.id):
        echo(f"  call {position} {what}: {state}")


def show_timers(lanes: Context, selected: str, timers: list[StoredTimer]) -> None:
    """The next ones; `lanes timers list` shows all."""
    now_ms = inspection.now_us(lanes.client) // 1000
    for timer in timers[:MOST_TIMERS]:
        echo(f"timer {shown(timer.name)}: due {moment(timer.at_ms)}, in {age((timer.at_ms - now_ms) / 1000)}")
    if len(timers) > MOST_TIMERS:
        echo(f"and {len(timers) - MOST_TIMERS:,} more timers: lanes timers list --{lanes.words.lane} {selected}")
