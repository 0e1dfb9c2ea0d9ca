"""`lanes timers`: list and cancel the timers that are not due yet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import click

from chatlanes.bot.adapters.ptb.job_storage import NEVER_MS
from chatlanes.bot.timers import content_of
from chatlanes.cli.command import CommandContext, CommandError, command, lanes
from chatlanes.cli.formatting import age, echo, moment, table
from chatlanes.cli.selection import bot_option, chat_option, is_of_chat, wanted
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.replies import StoredTimer
from chatlanes.lanes.transport.publish import timer_of

#: Jobs of python-telegram-bot do not belong to a chat, but to their name; those of a chat are in its lane.
_JOBS = "/jobs/"
#: The name of a repeating job's next run is that of its record, which is never due, and this.
_NEXT = " next"


@lanes.group()
def timers() -> None:
    """List and cancel timers."""


@command("list", timers)
@chat_option
@bot_option
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most this many, the next ones."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_(lanes: CommandContext, chat: str | None, bot: str | None, limit: int, as_json: bool) -> None:
    """List the timers that are not due yet, the next one first."""
    found, count = _found(lanes, chat, bot, limit)
    if as_json:
        for timer in found:
            click.echo(json.dumps(_as_json(timer)))
        return
    if count > len(found):
        click.echo(f"the next {len(found)} of {count:,} (--limit)")
    now_ms = inspection.now_us(lanes.client) // 1000
    rows = [[timer.id, *_due(timer.at_ms, now_ms), timer.owner, shown(timer.name)] for timer in found]
    if rows:
        click.echo(table(["id", "due", "in", "owner", "name"], rows, left=(0, 1, 3, 4)))
    else:
        click.echo("no timer is set" if chat is None and bot is None else "no timer matches")


@command("cancel", timers)
@click.argument("timer", metavar="ID|NAME")
@chat_option
@bot_option
def cancel(lanes: CommandContext, timer: str, chat: str | None, bot: str | None) -> None:
    """Remove a timer: by its ID, or with --chat by its NAME."""
    wanted(lanes, None, bot)
    if chat is None:
        found = _with_id(lanes, timer)
    else:
        found = [each for each in timers_of_chat(lanes, chat) if each.name == timer and _is_of_bot(lanes, each, bot)]
    if len(found) > 1:
        raise CommandError(f"{len(found)} timers are named {timer}: write one of the ids {_ids(found)}")
    if not found or not sum(lanes.store.cancel(found[0].owner, name) for name in _names(found[0])):
        raise CommandError(f"there is no timer {timer}: it was cancelled, or it is due already")
    echo(f"cancelled {found[0].id}")


def _names(timer: StoredTimer) -> tuple[str, ...]:
    """The timers that are cancelled with this one: the next run of a repeating job, and its record."""
    record = timer.name.removesuffix(_NEXT)
    return (record, record + _NEXT) if _JOBS in timer.owner else (timer.name,)


def _found(lanes: CommandContext, chat: str | None, bot: str | None, limit: int) -> tuple[list[StoredTimer], int]:
    """The next timers that match, and how many match."""
    wanted(lanes, None, bot)
    if chat is None and bot is None:
        count: Any = lanes.client.zcard(keys.TIMERS)
        return lanes.store.next_timers(0, limit), count
    if chat is None:
        bot_ids = [bot_id for bot_id, name in lanes.bot_ids.items() if name == bot]
        matching = lanes.store.timers(*(owner for each in bot_ids for owner in lanes.store.timer_owners(f"{each}/")))
    else:
        matching = [timer for timer in timers_of_chat(lanes, chat) if _is_of_bot(lanes, timer, bot)]
    return matching[:limit], len(matching)


def timers_of_chat(lanes: CommandContext, chat: str) -> list[StoredTimer]:
    """The timers of a chat, the next one first. Scans the names of all timers."""
    patterns = ["*" + re.sub(r"([\\*?\[\]])", r"\\\1", chat) + "*", f"*{_JOBS}*"]
    owners = {
        entry.decode().partition("\n")[0]
        for pattern in patterns
        for entry, _ in lanes.client.zscan_iter(keys.TIMERS, pattern, count=1000)
    }
    possible = sorted(owner for owner in owners if _JOBS in owner or is_of_chat(owner, chat))
    return [
        timer
        for timer in lanes.store.timers(*possible)
        if is_of_chat(timer.owner, chat) or any(is_of_chat(lane, chat) for lane in timer.lanes)
    ]


def _with_id(lanes: CommandContext, timer_id: str) -> list[StoredTimer]:
    """An id contains the time at which the timer is due: `<bot id>:timer:<ms>:<number>`; or it is that of a task with
    an eta, which owns its timer.
    """
    if found := lanes.store.timers(timer_of(timer_id)[0]):
        return found
    due_ms = [part for part in timer_id.split(":")[2:3] if part.isdecimal()]
    if not due_ms:
        raise CommandError(f"{timer_id} is not an id of a timer (`lanes timers list` shows them); a name needs --chat")
    entries: Any = lanes.client.zrangebyscore(keys.TIMERS, f"({int(due_ms[0]) - 1}", due_ms[0])
    owners = {entry.decode().partition("\n")[0] for entry in entries}
    return [timer for timer in lanes.store.timers(*sorted(owners)) if timer.id == timer_id]


def _is_of_bot(lanes: CommandContext, timer: StoredTimer, bot: str | None) -> bool:
    bot_id = timer.owner.partition("/")[0]
    return bot is None or (bot_id.isdecimal() and lanes.bot_ids.get(int(bot_id)) == bot)


def _as_json(timer: StoredTimer) -> dict[str, Any]:
    place = {"owner": timer.owner, "name": timer.name, "queue": timer.queue, "lanes": timer.lanes}
    return {"id": timer.id, "due_ms": timer.at_ms, **place, "update": content_of(timer)}


def _ids(found: Iterable[StoredTimer]) -> str:
    return ", ".join(timer.id for timer in found)


def _due(at_ms: int, now_ms: int) -> tuple[str, str]:
    return ("never", "") if at_ms >= NEVER_MS else (moment(at_ms), age((at_ms - now_ms) / 1000))


def shown(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:59]}…"
