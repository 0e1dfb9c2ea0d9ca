"""`lanes lane`: shows one lane: its messages, the calls of its first one, and its timers."""

from __future__ import annotations

import json
from typing import Any

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
@click.option("--json", "as_json", is_flag=True, help="One JSON object, without dead letters and timers.")
def lane(lanes: Context, lane: str, as_json: bool) -> None:
    """Show a lane by its key, such as {key}: its waiting and running {message}s, last errors and timers."""
    paused = inspection.paused(lanes.client)
    if as_json:
        echo(json.dumps(_as_json(lanes, lane, paused), indent=2))
        return
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


def _as_json(lanes: Context, key: str, paused: dict[str, int]) -> dict[str, Any]:
    standing, count = _standing(lanes, key, paused)
    rows = [
        {"id": record.id, lanes.words.message: title, "size": record.size, "state": record.state, "doing": doing_}
        for record, title, doing_ in standing
    ]
    errors, calls = _of_first(lanes, [record for record, *_ in standing])
    return {
        "lane": key,
        "paused_since_ms": paused.get(f"lane:{key}"),
        "in_lane": count,
        f"{lanes.words.message}s": rows,
        "errors": errors,
        "calls": [{"position": position, "name": what, "state": state} for position, state, what in calls],
    }


def _standing(lanes: Context, key: str, paused: dict[str, int]) -> tuple[list[tuple[Record, str, str]], int]:
    """The first messages of a lane, each with its title and what it is doing, and how many there are."""
    client, now_us = lanes.client, inspection.now_us(lanes.client)
    ids, count = inspection.in_lane(client, key, MOST_SHOWN)
    found = list(inspection.records(client, ids))
    titles = inspection.titles(client, [record.id for record in found], lanes.words.task)
    return [
        (
            record,
            with_size(titles[record.id], record),
            doing(record, now_us, paused, lanes.words) if place == 0 else record.state,
        )
        for place, record in enumerate(found)
    ], count


def _of_first(lanes: Context, standing: list[Record]) -> tuple[list[dict[str, Any]], list[tuple[str, str, str]]]:
    """The last errors and the journaled calls of earlier attempts of the first message."""
    if not standing:
        return [], []
    first = standing[0].id
    return inspection.problems(lanes.client, first)[-3:], inspection.journal(lanes.client, first)


def show_lane(lanes: Context, key: str, paused: dict[str, int]) -> None:
    paused_ms = paused.get(f"lane:{key}")
    standing, count = _standing(lanes, key, paused)
    echo(f"{key}: {count:,} in the lane" + (f", paused since {moment(paused_ms)}" if paused_ms else ""))
    rows = [[record.id, title, doing_] for record, title, doing_ in standing]
    if rows:
        click.echo(table(["id", lanes.words.message, "doing"], rows, left=range(3)))
    if count > len(rows):
        echo(f"and {count - len(rows):,} more")
    errors, calls = _of_first(lanes, [record for record, *_ in standing])
    for problem in errors:
        run = f"{problem.get('type')}: {' '.join(str(problem.get('message', '')).split())}"
        echo(f"  failed {moment(problem.get('at_ms', 0))}: {run[:120]}")
    for position, state, what in calls:
        echo(f"  call {position} {what}: {state}")
    click.echo()


def show_timers(lanes: Context, selected: str, timers: list[StoredTimer]) -> None:
    """The next ones; `lanes timers list` shows all."""
    now_ms = inspection.now_us(lanes.client) // 1000
    for timer in timers[:MOST_TIMERS]:
        echo(f"timer {shown(timer.name)}: due {moment(timer.at_ms)}, in {age((timer.at_ms - now_ms) / 1000)}")
    if len(timers) > MOST_TIMERS:
        echo(f"and {len(timers) - MOST_TIMERS:,} more timers: lanes timers list --{lanes.words.lane} {selected}")
