"""`lanes chat`: shows one chat: the updates in its lanes, the calls of its first update, its session and its timers."""

from __future__ import annotations

import json
from typing import Any

import click

from chatlanes.bot.session.stored import SESSION
from chatlanes.cli.collected import with_size
from chatlanes.cli.command import CommandContext, command
from chatlanes.cli.formatting import age, echo, moment, table
from chatlanes.cli.selection import OfChat, chat_argument, is_of_chat, wanted
from chatlanes.cli.status import doing
from chatlanes.cli.timers import shown, timers_of_chat
from chatlanes.lanes.monitoring import inspection
from chatlanes.lanes.monitoring.inspection import Record
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.replies import StoredTimer

#: The most updates shown of each lane.
MOST_SHOWN = 20
#: The most timers shown, the next ones.
MOST_TIMERS = 5


@command("chat", cls=OfChat)
@chat_argument
@click.option("--bot", metavar="NAME", help="Only this bot.")
@click.option("--content", "with_content", is_flag=True, help="Show the content of the session, not only its size.")
def chat(lanes: CommandContext, chat: str, bot: str | None, with_content: bool) -> None:
    """Show CHAT, a number or a key such as user:7: its lanes, what runs, its last errors, its session, its timers."""
    wanted(lanes, None, bot)
    found = [key for key in _lanes(lanes, chat) if bot in (None, _bot_of(lanes, key))]
    sessions = [name for name in _sessions(lanes, chat) if bot in (None, _bot_of(lanes, name))]
    paused = inspection.paused(lanes.client)
    for key in found:
        _show_lane(lanes, key, paused)
    for name in sessions:
        _show_session(lanes, name, with_content=with_content)
    buried = [record for record in _dead(lanes, chat) if bot in (None, lanes.names.get(record.group))]
    if buried:
        echo(f"{len(buried)} buried: lanes dead list --chat {chat}")
    timers = [timer for timer in timers_of_chat(lanes, chat) if bot in (None, _bot_of(lanes, timer.owner))]
    if timers:
        _show_timers(lanes, chat, timers)
    if not (found or sessions or buried or timers):
        echo(f"{chat} has no waiting, running or buried updates, no session and no timers")


def _show_lane(lanes: CommandContext, key: str, paused: dict[str, int]) -> None:
    paused_ms = paused.get(f"lane:{key}")
    client, now_us = lanes.client, inspection.now_us(lanes.client)
    ids, count = inspection.in_lane(client, key, MOST_SHOWN)
    standing = list(inspection.records(client, ids))
    titles = inspection.titles(client, [record.id for record in standing])
    echo(f"{key}: {count:,} in the lane" + (f", paused since {moment(paused_ms)}" if paused_ms else ""))
    rows = [
        [record.id, with_size(titles[record.id], record), doing(record, now_us, paused) if place == 0 else record.state]
        for place, record in enumerate(standing)
    ]
    if rows:
        click.echo(table(["id", "update", "doing"], rows, left=range(3)))
    if count > len(ids):
        echo(f"and {count - len(ids):,} more")
    if standing:
        _show_first(lanes, standing[0])
    click.echo()


def _show_first(lanes: CommandContext, first: Record) -> None:
    """The errors and journaled calls of its earlier attempts."""
    for problem in inspection.problems(lanes.client, first.id)[-3:]:
        run = f"{problem.get('type')}: {' '.join(str(problem.get('message', '')).split())}"
        echo(f"  failed {moment(problem.get('at_ms', 0))}: {run[:120]}")
    for position, state, what in inspection.journal(lanes.client, first.id):
        echo(f"  call {position} {what}: {state}")


def _show_session(lanes: CommandContext, name: str, *, with_content: bool) -> None:
    stored: Any = lanes.client.get(name) or b""
    ttl_ms: Any = lanes.client.pttl(name)
    lasts = f", for {ttl_ms / 3_600_000:,.1f} h more" if ttl_ms > 0 else ""
    echo(f"{name}: {len(stored):,} bytes{lasts}")
    if with_content:
        echo(_pretty(stored))


def _show_timers(lanes: CommandContext, chat: str, timers: list[StoredTimer]) -> None:
    """The next ones; `lanes timers list` shows all."""
    now_ms = inspection.now_us(lanes.client) // 1000
    for timer in timers[:MOST_TIMERS]:
        echo(f"timer {shown(timer.name)}: due {moment(timer.at_ms)}, in {age((timer.at_ms - now_ms) / 1000)}")
    if len(timers) > MOST_TIMERS:
        echo(f"and {len(timers) - MOST_TIMERS:,} more timers: lanes timers list --chat {chat}")


def _pretty(stored: bytes) -> str:
    try:
        return json.dumps(json.loads(stored), indent=2, ensure_ascii=False)
    except ValueError:
        return repr(stored)


def _lanes(lanes: CommandContext, chat: str) -> list[str]:
    found = _named(lanes, keys.LANE, chat)
    paused = [what.removeprefix("lane:") for what in inspection.paused(lanes.client) if what.startswith("lane:")]
    return sorted({*found, *(key for key in paused if is_of_chat(key, chat))})


def _sessions(lanes: CommandContext, chat: str) -> list[str]:
    return sorted(SESSION + key for key in _named(lanes, SESSION, chat))


def _named(lanes: CommandContext, prefix: str, chat: str) -> list[str]:
    """The keys with this prefix that belong to the chat, without the prefix."""
    glob = "".join(f"[{sign}]" if sign in "*?[]\\" else sign for sign in chat)
    names = (name.decode().removeprefix(prefix) for name in lanes.client.scan_iter(f"{prefix}*{glob}*", count=1000))
    return [name for name in names if is_of_chat(name, chat)]


def _dead(lanes: CommandContext, chat: str) -> list[Record]:
    is_wanted = wanted(lanes, chat, None)
    return [record for record in inspection.records(lanes.client, inspection.dead(lanes.client)) if is_wanted(record)]


def _bot_of(lanes: CommandContext, key: str) -> str | None:
    """The name of the bot whose id begins the key of a lane or session; None if it is unknown."""
    bot_id = key.removeprefix(SESSION).partition("/")[0]
    return lanes.bot_ids.get(int(bot_id)) if bot_id.isdecimal() else None
