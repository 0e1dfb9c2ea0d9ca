"""`chatlanes poller`: fetches updates by long polling, or replays a file."""

import logging
from functools import partial

import click

from chatlanes.poller.factory import check, poller_of
from chatlanes.poller.polling import poll_all
from chatlanes.poller.program import log_options, run
from chatlanes.poller.replay import replay
from chatlanes.poller.runtime import Stop
from chatlanes.poller.webhook.command import webhook
from chatlanes.settings import Settings
from chatlanes.updates.deployments import present

log = logging.getLogger("poller")


@log_options
@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND]")
@click.pass_context
def poller(ctx: click.Context) -> None:
    """Fetch updates from Telegram by long polling, and append them to the lanes.

    Needs BOT_TOKEN (or BOTS) and REDIS_URL. These and all other settings come from the environment, or from the file
    .env in this folder; `chatlanes settings` describes them. BOT is not imported here: the workers run it.

    Several pollers may run: one leads, the others stand by. Ctrl-C or SIGTERM stops it within 2 s.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(poll)


@log_options
@poller.command()
def poll() -> None:
    """Fetch updates by long polling (the default)."""
    run(_poll, traced="poller")


@log_options
@poller.command("replay")
@click.argument("file")
@click.option("--bot", metavar="NAME", help="The bot of the updates, if BOTS names several.")
def replay_file(file: str, bot: str | None) -> None:
    """Append the updates of FILE to their lanes.

    FILE has one JSON object a line; - reads the standard input. Updates that were appended within 48 h are skipped, so
    a replay may be repeated.
    """
    run(partial(replay, file=file, bot_name=bot or ""), traced="replay")


poller.add_command(webhook)


def _poll(settings: Settings, stop: Stop) -> int:
    """Polls one bot on this thread, or each of several on its own thread. Ends with 1 if none of them can be polled."""
    for bot in settings.served:
        check(bot)
    with present("poller", settings, stop.run):
        if settings.bots is None:
            poller_of(settings, stop).run()
        elif not poll_all(settings.served, lambda bot: poller_of(bot, stop).run(), stop):
            log.error("no bot can be polled")
            return 1
    log.info("stopped")
    return 0


if __name__ == "__main__":
    poller(prog_name="chatlanes poller")
