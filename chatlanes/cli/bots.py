"""`lanes bots`: the bots that are added and removed while the deployment runs (BOTS_KEY). Never shows a token."""

from __future__ import annotations

import io
import json
import sys

import click

import chatlanes.bots as added_bots
from celery_lanes.cli.context import CommandError, command
from celery_lanes.cli.formatting import moment, table
from celery_lanes.cli.group import Group
from chatlanes.cli.context import BotContext
from chatlanes.settings import Settings
from chatlanes.updates.added_bots import new_key


@click.group(cls=Group)
def bots() -> None:
    """Add and remove bots while the deployment runs, without a restart (BOTS_KEY)."""


@command("add", bots)
@click.option("--bot", "path", metavar="PATH", help="Its handler, such as tenants:handle. Default: BOT.")
def add(lanes: BotContext, path: str | None) -> None:
    """Add a bot, or replace its token and handler. The token is asked for, or read from the standard input."""
    stdin = sys.stdin or io.StringIO()  # None: it is closed
    token = click.prompt("Token", hide_input=True, err=True) if stdin.isatty() else stdin.readline()
    try:
        added = added_bots.add(token.strip(), path, settings=_settings(lanes))
    except added_bots.AddError as error:
        raise CommandError(str(error)) from error.__cause__  # the error of its handler's module
    what = "added" if added.is_new else "was added already:"
    click.echo(f"{what} bot {added.id} (@{added.username}), handled by {added.bot}")


@command("remove", bots)
@click.argument("bot_id", metavar="ID", type=int)
@click.option(
    "--drop",
    is_flag=True,
    help="Settle its waiting updates unrun, and cancel its broadcasts. Default: keep them until it is added again.",
)
def remove(lanes: BotContext, bot_id: int, drop: bool) -> None:
    """Remove the bot with this id: it is polled no more, and none of its updates is run."""
    if not added_bots.remove(bot_id, drop=drop, settings=_settings(lanes)):
        raise CommandError(f"there is no added bot {bot_id}: `chatlanes lanes bots list` shows all")
    click.echo(
        f"removed bot {bot_id}; its waiting updates are "
        + ("settled unrun, and its broadcasts cancelled" if drop else "kept, in case it is added again")
    )


@command("list", bots)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_(lanes: BotContext, as_json: bool) -> None:
    """Show the added bots: id, name, handler, and when each was added."""
    found = added_bots.list(settings=_settings(lanes))
    if as_json:
        for each in found:
            row = {"id": each.id, "username": each.username, "bot": each.bot, "added_ms": each.added_ms}
            click.echo(json.dumps(row))
    elif found:
        rows = [[str(each.id), f"@{each.username}", each.bot, moment(each.added_ms)] for each in found]
        click.echo(table(["id", "name", "handler", "added"], rows, range(4)))
    else:
        click.echo("no bot was added")


@command("key", bots)
def key(lanes: BotContext) -> None:
    """Print a new key for BOTS_KEY."""
    click.echo(new_key())


@command("rotate", bots)
def rotate(lanes: BotContext) -> None:
    """Seal every token with the first key of BOTS_KEY. Afterwards the other keys may be deleted."""
    number = added_bots.rotate(settings=_settings(lanes))
    click.echo(f"sealed {number} tokens with the first key of BOTS_KEY")


def _settings(lanes: BotContext) -> Settings:
    settings = lanes.settings()
    assert settings is not None, "the app of chatlanes has settings"  # noqa: S101
    return settings
