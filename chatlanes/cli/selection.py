"""Selects messages by chat and bot. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import click

from chatlanes.cli.command import CommandContext, CommandError
from chatlanes.lanes.monitoring.inspection import Record
from chatlanes.settings.checks import ORDERS


def is_of_chat(lane: str, chat: str) -> bool:
    """`chat` is a number, or a lane's key with or without the bot's id before it.

    A number includes all lanes of the chat: its topics, and its business and guest messages.
    """
    key = lane.partition("/")[2] or lane
    if chat in (lane, key):
        return True
    kind, *rest = key.split(":")
    if kind in ("chat", "guest", "user"):
        return rest == [chat]
    return (kind == "topic" and rest[:1] == [chat]) or (kind == "business" and rest[-1:] == [chat])


def wanted(lanes: CommandContext, chat: str | None, bot: str | None) -> Callable[[Record], bool]:
    """A predicate that selects the messages of a chat and a bot. Raises CommandError for an unknown bot."""
    if bot is not None and bot not in lanes.names.values():
        known = ", ".join(dict.fromkeys(lanes.names.values()))
        raise CommandError(f"--bot {bot}: there is no such bot; the bots are {known}")

    def is_wanted(record: Record) -> bool:
        in_chat = chat is None or any(is_of_chat(lane, chat) for lane in record.lanes)
        return in_chat and (bot is None or lanes.names.get(record.group) == bot)

    return is_wanted


def in_order(found: Iterable[Record]) -> list[Record]:
    """The messages in the order in which they were appended."""
    return sorted(found, key=lambda record: record.appended_us)


class OfChat(click.Command):
    """A command with the argument CHAT: -1001234 is a chat, not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f" {arg}" if re.fullmatch(r"-\d+", arg) else arg for arg in args])


def _chat(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A chat's number, or the key of a lane. Where ORDER_BY or the app makes the keys, a key may be any text."""
    if value is None:
        return None
    chat = value.strip()
    bots = ctx.obj.bots()
    is_ours = bool(bots) and all(bot.order_by in ORDERS for bot in bots)
    if is_ours and not re.fullmatch(r"-?\d+|.*[:/].*|bot", chat):
        raise click.BadParameter(f"{chat} is neither the number of a chat nor the key of a lane, such as user:7")
    return chat


chat_argument = click.argument("chat", metavar="CHAT", callback=_chat)
chat_option = click.option(
    "--chat", metavar="CHAT", callback=_chat, help="Only this chat: its number, or a key such as user:7."
)
bot_option = click.option("--bot", metavar="NAME", help="Only this bot.")
