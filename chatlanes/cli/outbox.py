"""`lanes send` and `lanes sent`: one call of the outbox, and how it ended."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from celery_lanes.cli.context import command
from celery_lanes.cli.formatting import echo, moment
from chatlanes.cli.broadcast import params_of, settings_of, text_of
from chatlanes.cli.context import BotContext
from chatlanes.outbox import Outbox, call_of, find


@command("send", None, context_settings={"ignore_unknown_options": True})  # the number of a group begins with a hyphen
@click.argument("chat", metavar="CHAT", type=int)
@click.argument("method", metavar="METHOD")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter; a VALUE may be JSON.")
@click.option(
    "--text-file", type=click.File("r", encoding="utf-8-sig"), help="The file that holds the `text` of the call."
)
@click.option("--once", metavar="KEY", help="The same KEY for this chat again sends nothing.")
@click.option("--bot", metavar="NAME", help="The bot, if there are several; the id of an added one.")
def send(
    lanes: BotContext,
    chat: int,
    method: str,
    params: tuple[str, ...],
    text_file: Any,
    once: str | None,
    bot: str | None,
) -> None:
    """Send one Bot API call to CHAT, in its lane, with flood control. Prints its ID; a worker makes it."""
    settings = settings_of(lanes, bot, "a call")
    given = params_of(params)
    if text_file:
        given["text"] = text_of(text_file)
    call = call_of(settings, chat, method, once, given)
    Outbox(settings).append(call)
    click.echo(call.id)


@command("sent", None)
@click.argument("id_", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def sent(lanes: BotContext, id_: str, as_json: bool) -> None:
    """Show how a call has ended: its result, or why it was not sent. Kept for 48 hours."""
    found = find(lanes.client, id_)
    if as_json:
        click.echo(json.dumps({**asdict(found), "error": found.error and str(found.error)}))
        return
    when = f" at {moment(found.ended_ms)}" if found.ended_ms else ""
    echo(f"{found.state}{when}" + (f": {found.why}" if found.why else ""))
    if found.result is not None:
        echo(json.dumps(found.result, indent=2, ensure_ascii=False))
