"""`lanes schedules`: the schedules of the bots, with their last and next times; removes one that no worker has.

Reads what the workers have recorded in Redis; it does not import the bot.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

import click

from celery_lanes.cli.context import CommandError, command
from celery_lanes.cli.formatting import table
from celery_lanes.cli.group import Group
from celery_lanes.protocol import Store
from chatlanes.bot.schedules import ScheduleRecord, bot_of, owner_of
from chatlanes.cli.context import BotContext


class Recorded(NamedTuple):
    """A schedule as a worker has recorded it. `next_ms`: None: it does not occur any more."""

    bot_id: int
    name: str
    record: ScheduleRecord
    next_ms: int | None


def recorded(store: Store) -> tuple[int, list[Recorded]]:
    """Redis' time in ms, and the schedules of all bots, by bot and name. Raises RedisError."""
    now_ms, stored = store.schedules()
    return now_ms, sorted(_decoded(stored), key=lambda each: (each.bot_id, each.name))


def _decoded(stored: dict[tuple[str, str], bytes]) -> Iterator[Recorded]:
    for (owner, name), value in stored.items():
        if (bot_id := bot_of(owner)) is not None:
            record = ScheduleRecord.decode(value)
            if not record.is_removed:
                yield Recorded(bot_id, name, record, record.clockwork.next(record.after_ms))


as_json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


@click.group(cls=Group, invoke_without_command=True)
@as_json_option
@click.pass_context
def schedules(ctx: click.Context, as_json: bool) -> None:
    """Show the schedules (SCHEDULES): expression, time zone, last and next time."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, as_json=as_json)


@command("list", schedules)
@as_json_option
def list_(lanes: BotContext, as_json: bool) -> None:
    """Show the schedules, as `lanes schedules` does."""
    _, found = recorded(lanes.store)
    if as_json:
        for each in found:
            click.echo(json.dumps(_as_json(lanes, each)))
    elif found:
        click.echo(
            table(
                ["bot", "schedule", "expression", "zone", "last", "next"],
                [_row(lanes, each) for each in found],
                range(6),
            )
        )
    else:
        click.echo("no worker has recorded a schedule (SCHEDULES)")


@command("remove", schedules)
@click.argument("name")
@click.option("--bot", metavar="NAME", help="Only this bot.")
def remove(lanes: BotContext, name: str, bot: str | None) -> None:
    """Remove the record of the schedule NAME, which no worker has any more. A worker that has it begins it anew."""
    _, found = recorded(lanes.store)
    matching = [each for each in found if each.name == name and bot in (None, _bot(lanes, each), str(each.bot_id))]
    if not matching:
        raise CommandError(f"there is no schedule {name}: lanes schedules shows all")
    if len(matching) > 1:
        raise CommandError(f"{len(matching)} bots have a schedule {name}: add --bot")
    [each] = matching
    owner = owner_of(each.bot_id)
    if not lanes.store.advance(owner, name, known=lanes.store.schedules()[1].get((owner, name), b""), record=b""):
        raise CommandError(f"schedule {name} was fired at this moment, so a worker has it: end that worker first")
    click.echo(f"removed schedule {name}")


def _row(lanes: BotContext, each: Recorded) -> list[str]:
    record = each.record
    times = (_shown(at_ms, record.tz) for at_ms in (record.last_ms, each.next_ms))
    return [_bot(lanes, each), each.name, record.cron, record.tz, *times]


def _as_json(lanes: BotContext, each: Recorded) -> dict[str, object]:
    record = each.record
    return {
        "bot": _bot(lanes, each),
        "name": each.name,
        "cron": record.cron,
        "tz": record.tz,
        "last_ms": record.last_ms,
        "next_ms": each.next_ms,
    }


def _bot(lanes: BotContext, each: Recorded) -> str:
    return lanes.bot_ids.get(each.bot_id, str(each.bot_id))


def _shown(at_ms: int | None, tz: str) -> str:
    """A time in the zone of its schedule, such as `2026-11-23 09:00:00+01:00`; a dash for None."""
    return "–" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, ZoneInfo(tz)).isoformat(" ", "seconds")
