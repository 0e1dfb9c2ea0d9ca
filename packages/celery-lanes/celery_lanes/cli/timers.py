"""`lanes timers`: list and cancel the timers that are not due yet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import click

from celery_lanes.cli.context import CommandError, Context, command, group_option, lane_option, lanes, wanted
from celery_lanes.cli.formatting import age, echo, moment, table
from celery_lanes.monitoring import inspection
from celery_lanes.protocol import StoredTimer, keys
from celery_lanes.transport.publish import timer_of


@lanes.group()
def timers() -> None:
    """List and cancel timers."""


@command("list", timers)
@lane_option
@group_option
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most this many, the next ones."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_(lanes: Context, lane: str | None, group: str | None, limit: int, as_json: bool) -> None:
    """List the timers that are not due yet, the next one first."""
    found, count = _found(lanes, lane, group, limit)
    if as_json:
        for timer in found:
            echo(json.dumps(_as_json(lanes, timer)))
        return
    if count > len(found):
        click.echo(f"the next {len(found)} of {count:,} (--limit)")
    now_ms = inspection.now_us(lanes.client) // 1000
    rows = [[timer.id, *_due(lanes, timer.at_ms, now_ms), timer.owner, shown(timer.name)] for timer in found]
    if rows:
        click.echo(table(["id", "due", "in", "owner", "name"], rows, left=(0, 1, 3, 4)))
    else:
        click.echo("no timer is set" if lane is None and group is None else "no timer matches")


@command("cancel", timers)
@click.argument("timer", metavar="ID|NAME")
@lane_option
@group_option
def cancel(lanes: Context, timer: str, lane: str | None, group: str | None) -> None:
    """Remove a timer: by its ID, or with --{lane} by its NAME."""
    wanted(lanes, None, group)
    if lane is None:
        found = _with_id(lanes, timer)
    else:
        found = [each for each in lanes.timers_of(lane) if each.name == timer and lanes.is_timer_of_group(each, group)]
    if len(found) > 1:
        raise CommandError(f"{len(found)} timers are named {timer}: write one of the ids {_ids(found)}")
    if not found or not sum(lanes.store.cancel(found[0].owner, name) for name in lanes.names_with(found[0])):
        by_name = f"; to cancel one by its name, name its {lanes.words.lane} too" if lane is None else ""
        raise CommandError(f"there is no timer {timer}: it was cancelled, or it is due already{by_name}")
    echo(f"cancelled {found[0].id}")


def _found(lanes: Context, lane: str | None, group: str | None, limit: int) -> tuple[list[StoredTimer], int]:
    """The next timers that match, and how many match."""
    wanted(lanes, None, group)
    if lane is None and group is None:
        count: Any = lanes.client.zcard(keys.TIMERS)
        return lanes.store.next_timers(0, min(limit, count + 1)), count
    if lane is None:
        matching = lanes.timers_of_group(group or "")
    else:
        matching = [timer for timer in lanes.timers_of(lane) if lanes.is_timer_of_group(timer, group)]
    return matching[:limit], len(matching)


def _with_id(lanes: Context, timer_id: str) -> list[StoredTimer]:
    """An id contains the time at which the timer is due: `…:timer:<ms>:<number>`; or it is that of a task with
    an eta, which owns its timer.
    """
    if found := lanes.store.timers(timer_of(timer_id)[0]):
        return found
    due_ms = [part for part in timer_id.split(":")[2:3] if re.fullmatch("[0-9]{1,16}", part)]
    if not due_ms:
        return []
    entries: Any = lanes.client.zrangebyscore(keys.TIMERS, f"({int(due_ms[0]) - 1}", due_ms[0])
    owners = {entry.decode().partition("\n")[0] for entry in entries}
    return [timer for timer in lanes.store.timers(*sorted(owners)) if timer.id == timer_id]


def _as_json(lanes: Context, timer: StoredTimer) -> dict[str, Any]:
    place = {"owner": timer.owner, "name": timer.name, "queue": timer.queue, "lanes": timer.lanes}
    return {
        "id": timer.id,
        "due_ms": timer.at_ms,
        **place,
        lanes.words.message: inspection.call_of(timer.stored, lanes.words.task) or {},
    }


def _ids(found: Iterable[StoredTimer]) -> str:
    return ", ".join(timer.id for timer in found)


def _due(lanes: Context, at_ms: int, now_ms: int) -> tuple[str, str]:
    return ("never", "") if at_ms >= lanes.never_ms else (moment(at_ms), age((at_ms - now_ms) / 1000))


def shown(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:59]}…"
