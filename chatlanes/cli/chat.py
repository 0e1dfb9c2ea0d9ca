"""The commands for one chat: `lanes chat` shows its lanes, session and timers; `lanes pause chat` and `resume`."""

from __future__ import annotations

import json
from typing import Any

import click

from celery_lanes.cli.context import CommandError, OfLane, command, lane_argument, wanted
from celery_lanes.cli.formatting import echo
from celery_lanes.cli.lane import buried_of, show_lane, show_timers
from celery_lanes.cli.pausing import print_result
from celery_lanes.monitoring import inspection
from celery_lanes.protocol import keys
from chatlanes.bot.stored import SESSION
from chatlanes.cli.context import BotContext
from chatlanes.settings.checks import ORDERS

_of_bot = click.option("--bot", metavar="NAME", help="The bot that the chat belongs to, if there are several.")
_PAUSE_HELP = (
    "A chat by its number, or a lane by its key, such as user:7, 123456/chat:7 or, in an app of yours, customer:9."
)


@command("chat", None, cls=OfLane)
@lane_argument
@click.option("--bot", metavar="NAME", help="Only this bot.")
@click.option("--content", "with_content", is_flag=True, help="Show the content of the session, not only its size.")
def chat(lanes: BotContext, lane: str, bot: str | None, with_content: bool) -> None:
    """Show CHAT, a number or a key such as user:7: its lanes, running updates, last errors, session and timers."""
    _check(lanes, bot)
    found = [key for key in _lanes(lanes, lane) if bot in (None, _bot_of(lanes, key))]
    sessions = [name for name in _sessions(lanes, lane) if bot in (None, _bot_of(lanes, name))]
    paused = inspection.paused(lanes.client)
    for key in found:
        show_lane(lanes, key, paused)
    for name in sessions:
        _show_session(lanes, name, with_content=with_content)
    buried = [record for record in buried_of(lanes, lane) if bot in (None, _bot_of(lanes, record.lanes[0]))]
    if buried:
        echo(f"{len(buried)} buried: lanes dead list --chat {lane}")
    timers = [timer for timer in lanes.timers_of(lane) if bot in (None, _bot_of(lanes, timer.owner))]
    if timers:
        show_timers(lanes, lane, timers)
    orders = {_order_of(lanes, bot_id) for bot_id in _ids(lanes, bot).values() or [None]}
    elsewhere = [order for order in orders if order == "bot" or order not in ORDERS]
    if elsewhere and not found and _is_number(lane):
        echo(_instead(elsewhere[0], lane))
    elif not (found or sessions or buried or timers):
        echo(f"{lane} has no waiting, running or buried updates, no session and no timers")


def _show_session(lanes: BotContext, name: str, *, with_content: bool) -> None:
    stored: Any = lanes.client.get(name) or b""
    ttl_ms: Any = lanes.client.pttl(name)
    lasts = f", for {ttl_ms / 3_600_000:,.1f} h more" if ttl_ms > 0 else ""
    echo(f"{name}: {len(stored):,} bytes{lasts}")
    if with_content:
        echo(_pretty(stored))


def _pretty(stored: bytes) -> str:
    try:
        return json.dumps(json.loads(stored), indent=2, ensure_ascii=False)
    except ValueError:
        return repr(stored)


def _lanes(lanes: BotContext, chat: str) -> list[str]:
    found = _named(lanes, keys.LANE, chat)
    paused = [what.removeprefix("lane:") for what in inspection.paused(lanes.client) if what.startswith("lane:")]
    return sorted({*found, *(key for key in paused if lanes.is_of(key, chat))})


def _sessions(lanes: BotContext, chat: str) -> list[str]:
    return sorted(SESSION + key for key in _named(lanes, SESSION, chat))


def _named(lanes: BotContext, prefix: str, chat: str) -> list[str]:
    """The keys with this prefix that belong to the chat, without the prefix."""
    pattern = f"{prefix}*{keys.literal(chat)}*"
    names = (name.decode().removeprefix(prefix) for name in lanes.client.scan_iter(pattern, count=1000))
    return [name for name in names if lanes.is_of(name, chat)]


def _check(lanes: BotContext, bot: str | None) -> None:
    """Raises CommandError for an unknown bot."""
    if bot not in (None, *lanes.names.values(), *lanes.bot_ids.values()):
        wanted(lanes, None, bot)


def _bot_of(lanes: BotContext, key: str) -> str | None:
    """The name of the bot whose id begins the key of a lane or session; None if it is unknown."""
    bot_id = key.removeprefix(SESSION).partition("/")[0]
    return lanes.bot_ids.get(int(bot_id)) if bot_id.isdecimal() else None


@command("chat", None, cls=OfLane, help=_PAUSE_HELP)
@lane_argument
@_of_bot
def pause_chat(lanes: BotContext, lane: str, bot: str | None) -> None:
    key = lane_key(lanes, lane, bot)
    print_result(lanes.store.pause("lane", key), f"paused {key}", f"already paused: {key}")


@command("chat", None, cls=OfLane, help=_PAUSE_HELP)
@lane_argument
@_of_bot
def resume_chat(lanes: BotContext, lane: str, bot: str | None) -> None:
    key = lane_key(lanes, lane, bot)
    print_result(lanes.store.resume("lane", key), f"resumed {key}", f"not paused: {key}")


def lane_key(lanes: BotContext, chat: str, bot: str | None) -> str:
    """The key of a lane; in an app without bots, `chat` is the key. Raises CommandError if it is ambiguous which bot
    the chat belongs to, and for a number that is not that of a lane.
    """
    if "/" in chat or not (lanes.bots() or lanes.bot_ids):
        return chat
    ids = _ids(lanes, bot)
    if len(ids) > 1:
        raise CommandError(f"there are several bots: add --bot with one of {', '.join(ids)}")
    bot_id = next(iter(ids.values()), None)
    if _is_number(chat) and (instead := _instead(_order_of(lanes, bot_id), chat)):
        raise CommandError(instead)
    key = f"chat:{chat}" if _is_number(chat) else chat
    if bot_id is not None:
        return f"{bot_id}/{key}"
    raise CommandError(
        f"the bot's id is unknown here, because its token is not set: put the id before the key, as in 123456/{key}"
    )


def _ids(lanes: BotContext, bot: str | None) -> dict[str, int]:
    """The bots with this name, by name; None: all."""
    return {name: bot_id for bot_id, name in lanes.bot_ids.items() if bot in (None, name)}


def _order_of(lanes: BotContext, bot_id: int | None) -> str:
    """ORDER_BY of a bot. An added one has that of the process."""
    settings = lanes.settings()
    own = {each.bot_id: each.order_by for each in lanes.bots() if each.bot_token is not None}
    return own.get(bot_id or 0) or (settings.order_by if settings else "chat")


def _is_number(chat: str) -> bool:
    return chat.removeprefix("-").isdecimal()


def _instead(order_by: str, chat: str) -> str:
    """What to give instead of the number of a chat. Empty: its updates are in the lane of its number."""
    match order_by:
        case "chat" | "chat+user":
            return ""
        case "user":
            return f"with ORDER_BY=user each user has a lane: give it, as in user:{chat if int(chat) > 0 else 123456}"
        case "topic":
            return f"with ORDER_BY=topic each topic has a lane: give chat:{chat}, or a topic, as in topic:{chat}:3"
        case "bot":
            return "with ORDER_BY=bot all chats are in one lane: give its key, bot"
        case _:
            return f"with ORDER_BY={order_by} give the key of a lane, with the id of the bot, as in 123456/customer:9"
