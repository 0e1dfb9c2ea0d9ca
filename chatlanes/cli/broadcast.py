"""`lanes broadcast`: start, watch, pause, resume and cancel broadcasts, and list the recipients that were not reached.

A started broadcast does not need this command: the workers continue it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TextIO

import click

from celery_lanes.cli.context import CommandError, command
from celery_lanes.cli.formatting import age, bar, echo, moment, number, table
from celery_lanes.cli.group import FiniteRange, Group
from chatlanes.bot.broadcasting import session_chats
from chatlanes.bot.loader import load_bot
from chatlanes.broadcasts import (
    NOT_REACHED,
    BroadcastProgress,
    Broadcasts,
    Call,
    Feeder,
    RecipientsError,
    bots_with,
    checked_rate,
    new_id,
    read_recipients,
)
from chatlanes.cli.context import BotContext
from chatlanes.settings import Settings
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.added_bots import added_bot

#: The time over which the rate is measured.
RATE_OVER_S = 1.0
#: Why a broadcast of this state is not resumed.
_NOT_RESUMED = {"cancelled": "was cancelled and cannot be resumed", "done": "has ended"}
BAR = 40


@click.group(cls=Group)
def broadcast() -> None:
    """Send one message, or run a function, for each of many chats, at a steady rate, while live updates go first."""


_bot = click.option("--bot", metavar="NAME", help="The bot, if there are several; the id of an added one.")
_id = click.argument("id_", metavar="ID")


@command("start", broadcast)
@click.option(
    "--to",
    "file",
    type=click.File("r", encoding="utf-8-sig", errors="replace"),
    help="A file with one chat id on each line; `-`: the standard input.",
)
@click.option("--sessions", is_flag=True, help="Every chat that has a session.")
@click.option("--method", help="The method of the Bot API to call for each chat, such as sendMessage.")
@click.option(
    "--text-file", type=click.File("r", encoding="utf-8-sig"), help="The file that holds the `text` of the call."
)
@click.option("--parse-mode", help="The `parse_mode` of the call: HTML or MarkdownV2.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Another parameter; a VALUE may be JSON.")
@click.option("--handler", metavar="MODULE:FUNCTION", help="Instead of a method: a function that is run with each ctx.")
@click.option("--rate", type=FiniteRange(0.1, 1000), help="Recipients per second, instead of BROADCAST_RATE.")
@click.option(
    "--paid", is_flag=True, help="Pass allow_paid_broadcast: rates above 30, for which Telegram charges Stars."
)
@click.option("--watch", is_flag=True, help="Show the progress until it ends. Ctrl-C ends only this command.")
@_bot
def start(lanes: BotContext, file: Any, sessions: bool, bot: str | None, **given: Any) -> None:
    """Start a broadcast. Prints its ID."""
    settings = settings_of(lanes, bot)
    if bool(file) == sessions:
        raise click.UsageError("give the recipients: either --to FILE or --sessions")
    call = _call(settings, given)
    try:
        rate = checked_rate(given["rate"] or settings.broadcast_rate, paid=given["paid"])
        chats = session_chats(lanes.client, settings.bot_id) if sessions else read_recipients(file)
    except RecipientsError as error:
        raise CommandError(f"{file.name}: {error}") from None
    if not chats:
        raise CommandError("no chat has a session: give the recipients with --to FILE")
    id_ = new_id()
    feeder = Feeder(lanes.store, settings)
    feeder.broadcasts.store(id_, call, chats, rate)
    click.echo(id_)  # before it starts: nobody may start one again whose ID was not seen
    feeder.start(id_)
    click.echo(f"{call.name} for {number(len(chats))} chats, {rate:g} per second: {age(len(chats) / rate)}", err=True)
    if given["watch"]:
        _watch(feeder.broadcasts, id_)


@command("status", broadcast)
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--watch", is_flag=True, help="Repeat until the broadcast ends.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each broadcast, one per line.")
@_bot
def status(lanes: BotContext, id_: str | None, watch: bool, as_json: bool, bot: str | None) -> None:
    """Show a broadcast: its progress and rate, the time left, and how many were not reached. Without ID, show all."""
    broadcasts = broadcasts_of(lanes, bot, id_)
    if id_ is None:
        _show_all(broadcasts.all(), as_json=as_json)
    elif watch:
        _watch(broadcasts, id_)
    else:
        before = broadcasts.progress(id_)
        time.sleep(RATE_OVER_S if before.state == "running" else 0)
        now = broadcasts.progress(id_)
        rate = (now.done - before.done) / RATE_OVER_S
        echo(json.dumps(as_dict(now, rate)) if as_json else "\n".join(described(now, rate)))


@command("pause", broadcast)
@_id
@_bot
def pause(lanes: BotContext, id_: str, bot: str | None) -> None:
    """Stop a broadcast; calls in flight end. No chat waits for it meanwhile."""
    broadcasts = broadcasts_of(lanes, bot, id_)
    is_paused = broadcasts.set_state(id_, "paused", only_from=("running",))
    click.echo(f"paused {id_}" if is_paused else f"{id_} was not running")


@command("resume", broadcast)
@_id
@_bot
def resume(lanes: BotContext, id_: str, bot: str | None) -> None:
    """Continue a paused broadcast."""
    feeder = Feeder(lanes.store, settings_of(lanes, bot))
    if feeder.resume(id_):
        click.echo(f"resumed {id_}")
    else:
        state = feeder.broadcasts.progress(id_).state
        click.echo(f"{id_} {_NOT_RESUMED.get(state, 'was not paused')}")


@command("cancel", broadcast)
@_id
@_bot
def cancel(lanes: BotContext, id_: str, bot: str | None) -> None:
    """End a broadcast; calls in flight end. It cannot be resumed."""
    feeder = Feeder(lanes.store, settings_of(lanes, bot))
    click.echo(f"cancelled {id_}" if feeder.cancel(id_) else f"{id_} has ended")


@command("report", broadcast)
@_id
@click.option("--csv", "as_csv", is_flag=True, help="As CSV: chat_id, reason, description.")
@click.option(
    "--reason", "only", multiple=True, type=click.Choice([each.value for each in NOT_REACHED]), help="Only this reason."
)
@_bot
def report(lanes: BotContext, id_: str, as_csv: bool, only: tuple[str, ...], bot: str | None) -> None:
    """List the chats that were not reached, each with the reason."""
    broadcasts = broadcasts_of(lanes, bot, id_)
    broadcasts.progress(id_)  # raises for an unknown one
    if as_csv:
        broadcasts.report(id_, sys.stdout, only)
        return
    rows = [
        [str(chat), reason, detail] for chat, reason, detail in broadcasts.missed(id_) if not only or reason in only
    ]
    click.echo(
        table(["chat", "reason", "description"], rows, left=range(3)) if rows else "every chat was reached so far"
    )


def settings_of(lanes: BotContext, bot: str | None, what: str = "a broadcast") -> Settings:
    """The settings of the bot. Raises CommandError if it is ambiguous, or has no token here."""
    bots = [each for each in lanes.bots() if bot in (None, each.bot_name) and each.bot_token is not None]
    if not bots and bot is not None:
        bots = _added(lanes, bot)
    if len(bots) == 1:
        return bots[0]
    if bots:
        raise CommandError(f"there are several bots: add --bot with one of {', '.join(each.bot_name for each in bots)}")
    raise CommandError(
        f"{what} needs the token of its bot: set BOT_TOKEN, or name a bot with --bot: one of the file BOTS, or the id "
        "of an added one"
    )


def _added(lanes: BotContext, bot: str) -> list[Settings]:
    """The added bot of this id, if there is one (BOTS_KEY). Raises NotOpenedError."""
    settings = lanes.settings()
    found = added_bot(settings, bot) if settings else None
    return [found] if found else []


def broadcasts_of(lanes: BotContext, bot: str | None, id_: str | None) -> Broadcasts:
    """Those of the bot. They need no token: without one in the settings, an added bot is found by its id, or by that
    of its broadcast; None: any id.

    Raises CommandError.
    """
    if any(each.bot_token is not None and bot in (None, each.bot_name) for each in lanes.bots()):
        return Broadcasts(lanes.client, settings_of(lanes, bot).bot_id)
    bot_ids = bots_with(lanes.client, id_ or "*")
    if bot is not None:
        bot_ids = {each for each in bot_ids if str(each) == bot}
    if len(bot_ids) == 1:
        return Broadcasts(lanes.client, bot_ids.pop())
    if bot_ids:
        raise CommandError(
            f"several bots have broadcasts: add --bot with one of {', '.join(map(str, sorted(bot_ids)))}"
        )
    raise CommandError(f"there is no broadcast {id_}" if id_ else "there are no broadcasts")


def described(progress: BroadcastProgress, rate: float) -> list[str]:
    """The lines that show a broadcast."""
    about = f"{progress.id}  {progress.state}" + (
        f": {progress.why}" if progress.why and progress.state == "paused" else ""
    )
    lines = [
        about,
        f"{bar(progress.share, BAR)} {progress.share:6.1%}  {number(progress.done)} of {number(progress.total)}",
    ]
    if progress.state == "running":
        left = f", {age((progress.total - progress.done) / rate)} left" if rate else ""
        lines.append(f"{rate:.1f} per second{left}")
    elif progress.ended_ms:
        lines.append(f"ended {moment(progress.ended_ms)} after {age((progress.ended_ms - progress.started_ms) / 1000)}")
    lines += [f"{number(count):>10}  {reason}" for reason, count in progress.counts.items() if count]
    return lines


def as_dict(progress: BroadcastProgress, rate: float | None = None) -> dict[str, Any]:
    """A broadcast as JSON."""
    rest = {"done": progress.done, "pending": max(progress.pending, 0)}
    return {**asdict(progress), **rest, **({} if rate is None else {"measured_rate": round(rate, 1)})}


def _watch(broadcasts: Broadcasts, id_: str) -> None:
    """Show the progress until the broadcast has ended or is paused. In a terminal the lines are replaced."""
    before, shown = broadcasts.progress(id_), 0
    with suppress(KeyboardInterrupt):
        while True:
            time.sleep(RATE_OVER_S)
            now = broadcasts.progress(id_)
            lines = described(now, (now.done - before.done) / RATE_OVER_S)
            if shown and sys.stdout.isatty():
                click.echo(f"\x1b[{shown}A\x1b[J", nl=False)
            echo("\n".join(lines))
            before, shown = now, len(lines)
            if now.ended_ms or now.state == "paused":
                return


def _show_all(found: list[BroadcastProgress], *, as_json: bool) -> None:
    if as_json:
        for each in found:
            click.echo(json.dumps(as_dict(each)))
        return
    rows = [
        [
            each.id,
            each.state,
            moment(each.started_ms) if each.started_ms else "",
            number(each.total),
            number(each.done),
            f"{each.share:.0%}",
        ]
        for each in found
    ]
    head = ["id", "state", "started", "recipients", "done", ""]
    click.echo(table(head, rows, left=range(3)) if rows else "there are no broadcasts")


def _call(settings: Settings, given: dict[str, Any]) -> Call:
    if bool(given["method"]) == bool(given["handler"]):
        raise click.UsageError("choose the action for each chat: either --method or --handler")
    if given["handler"]:
        if given["params"] or given["text_file"] or given["parse_mode"]:
            raise click.UsageError("--param, --text-file and --parse-mode are for --method")
        try:
            load_bot(given["handler"], "--handler")
        except ImportPathError as error:
            raise CommandError(str(error)) from error.__cause__
        return Call(handler=given["handler"])
    params = params_of(given["params"])
    if given["text_file"]:
        params["text"] = text_of(given["text_file"])
    if given["parse_mode"]:
        params["parse_mode"] = given["parse_mode"]
    if given["paid"]:
        params["allow_paid_broadcast"] = True
    if given["method"] == "sendMessage" and not str(params.get("text", "")).strip():
        raise CommandError("sendMessage has no text: give --text-file FILE or --param text=Hello")
    try:
        return Call.of_method(given["method"], params)
    except (TypeError, ValueError) as error:
        raise CommandError(str(error)) from None


def text_of(file: TextIO) -> str:
    try:
        return file.read().strip("\n")
    except UnicodeDecodeError as error:
        raise CommandError(f"{file.name}: it is not UTF-8: {error.reason} at byte {error.start}") from None


def params_of(texts: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise click.UsageError(f"--param {text}: write NAME=VALUE, such as disable_notification=true")
        if name in found:
            raise click.UsageError(f"--param {name} is given twice")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found
