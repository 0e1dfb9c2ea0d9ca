"""`lanes pause` and `lanes resume`: a chat (or any lane, by its key), a queue, or all queues of a bot.

While paused, updates are still appended and running handlers finish, but none start. After a resume, each chat
continues in order.
"""

from __future__ import annotations

from typing import Any

import click

from chatlanes.cli.command import CommandContext, CommandError, command, lanes
from chatlanes.cli.selection import OfChat, chat_argument
from chatlanes.lanes.protocol.keys import group_of


@lanes.group()
def pause() -> None:
    """Stop handing out updates of a chat, a queue or a bot. Updates still come in, and running handlers finish."""


@lanes.group()
def resume() -> None:
    """Hand out updates again after a pause."""


_of_bot = click.option("--bot", metavar="NAME", help="The bot that the chat belongs to, if there are several.")
_queue = click.argument("queue", metavar="QUEUE")
_bot = click.argument("bot", metavar="[NAME]", required=False)


@command("chat", pause, cls=OfChat)
@chat_argument
@_of_bot
def pause_chat(lanes: CommandContext, chat: str, bot: str | None) -> None:
    """A chat by its number, or a lane by its key, such as user:7, 123456/chat:7 or, in an app of yours, customer:9."""
    key = lane_key(lanes, chat, bot)
    _result(lanes.store.pause("lane", key), f"paused {key}", f"{key} was paused already")


@command("chat", resume, cls=OfChat)
@chat_argument
@_of_bot
def resume_chat(lanes: CommandContext, chat: str, bot: str | None) -> None:
    """A chat by its number, or a lane by its key, such as user:7, 123456/chat:7 or, in an app of yours, customer:9."""
    key = lane_key(lanes, chat, bot)
    _result(lanes.store.resume("lane", key), f"resumed {key}", f"{key} was not paused")


@command("queue", pause)
@_queue
def pause_queue(lanes: CommandContext, queue: str) -> None:
    """One queue, such as updates.0."""
    _check_queue(lanes, queue)
    _result(lanes.store.pause("queue", queue), f"paused {queue}", f"{queue} was paused already")


@command("queue", resume)
@_queue
def resume_queue(lanes: CommandContext, queue: str) -> None:
    """One queue, such as updates.0."""
    _result(lanes.store.resume("queue", queue, [queue]), f"resumed {queue}", f"{queue} was not paused")


@command("bot", pause)
@_bot
def pause_bot(lanes: CommandContext, bot: str | None) -> None:
    """All queues of a bot. NAME is required if there are several bots."""
    group = _group(lanes, bot)
    name = lanes.names[group]
    _result(lanes.store.pause("group", group), f"paused {name}", f"{name} was paused already")


@command("bot", resume)
@_bot
def resume_bot(lanes: CommandContext, bot: str | None) -> None:
    """All queues of a bot. NAME is required if there are several bots."""
    group = _group(lanes, bot)
    name, queues = lanes.names[group], [queue for _, queue in lanes.queues if group_of(queue) == group]
    _result(lanes.store.resume("group", group, queues), f"resumed {name}", f"{name} was not paused")


def lane_key(lanes: CommandContext, chat: str, bot: str | None) -> str:
    """The key of a lane; in an app without bots, `chat` is the key. Raises CommandError if it is ambiguous which bot
    the chat belongs to.
    """
    if "/" in chat or not lanes.bots():
        return chat
    ids = {name: bot_id for bot_id, name in lanes.bot_ids.items() if bot in (None, name)}
    key = chat if ":" in chat else f"chat:{chat}"
    if len(ids) == 1:
        return f"{next(iter(ids.values()))}/{key}"
    if ids:
        raise CommandError(f"there are several bots: add --bot with one of {', '.join(ids)}")
    raise CommandError(
        f"the bot's id is unknown here, because its token is not set: put the id before the key, as in 123456/{key}"
    )


def _group(lanes: CommandContext, bot: str | None) -> str:
    groups = {name: group for group, name in reversed(lanes.names.items())}
    if bot is not None and bot in groups:
        return groups[bot]
    if bot is None and len(groups) == 1:
        return next(iter(groups.values()))
    there_are = ", ".join(reversed(groups))
    raise CommandError(
        f"there is no bot {bot}: the bots are {there_are}" if bot else f"name one of the bots: {there_are}"
    )


def _check_queue(lanes: CommandContext, queue: str) -> None:
    known = [name for _, name in lanes.queues]
    if queue not in known:
        raise CommandError(f"there is no lane queue {queue}: the queues are {', '.join(known)}")


def _result(is_done: bool, done: str, otherwise: str) -> Any:
    click.echo(done if is_done else otherwise)
