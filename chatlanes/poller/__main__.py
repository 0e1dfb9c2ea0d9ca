"""`chatlanes poller`: fetches updates by long polling, or replays a file.

Guarantees, if there are many bots, that a bot which fails or cannot be polled does not stop the others, and that each
log line names its bot. The bots share the process and the stop request; each has a thread, a lead, a backlog limit and
connections of its own.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread

import click

from chatlanes.logs.ids import thread_of
from chatlanes.poller.added_bots import AddedPollers, poll_until_stopped
from chatlanes.poller.factory import check, poller_of
from chatlanes.poller.program import log_options, run
from chatlanes.poller.replay import replay
from chatlanes.poller.runtime import Stop
from chatlanes.poller.webhook.command import webhook
from chatlanes.settings import Settings
from chatlanes.settings.bots import AddedBot
from chatlanes.updates.deployments import present

log = logging.getLogger("poller")

#: Polls one bot until the stop request.
Poll = Callable[[Settings], None]


@log_options
@click.group(invoke_without_command=True, subcommand_metavar="[COMMAND]")
@click.pass_context
def poller(ctx: click.Context) -> None:
    """Fetch updates from Telegram by long polling, and append them to the lanes.

    Needs BOT_TOKEN (or BOTS, or BOTS_KEY) and REDIS_URL. These and all other settings come from the environment, or
    from the file .env in this folder; `chatlanes settings` describes them. BOT is not imported here: the workers run
    it.

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
@click.option(
    "--bot",
    metavar="NAME",
    help="The bot of the updates, if there are several: its name in BOTS, or the id of an added one.",
)
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
        if settings.bots is None and settings.bots_key is None:
            poller_of(settings, stop).run()
        elif not _poll_many(settings, stop):
            log.error("no bot can be polled")
            return 1
    log.info("stopped")
    return 0


# -- many bots


def _poll_many(settings: Settings, stop: Stop) -> bool:
    """Polls the bots of the file or BOT_TOKEN, and those that are added. False if none of them could be polled."""
    if settings.bots_key is None:
        return poll_all(settings.served, lambda bot: poller_of(bot, stop).run(), stop)
    check(AddedBot.of(settings, "1:unused", settings.bot))
    static = Thread(target=poll_all, args=(settings.served, lambda bot: poller_of(bot, stop).run(), stop), daemon=True)
    static.start()
    try:
        return poll_until_stopped(lambda: AddedPollers(settings, stop).run(), stop, "the poller is restarted")
    finally:
        static.join()


def poll_all(bots: Sequence[Settings], poll: Poll, stop: Stop) -> bool:
    """Polls every bot until the stop request. False if none of them could be polled."""
    failed: list[Settings] = []
    threads = [
        # Each log line of a bot contains the name of its thread.
        Thread(target=_poll_one, args=(bot, poll, stop, failed), name=thread_of(bot.bot_name), daemon=True)
        for bot in bots
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return len(failed) < len(bots)


def _poll_one(bot: Settings, poll: Poll, stop: Stop, failed: list[Settings]) -> None:
    """Polls a bot until the stop request. Adds it to `failed` if it cannot be polled."""
    if not poll_until_stopped(lambda: poll(bot), stop, "the poller is restarted"):
        failed.append(bot)


if __name__ == "__main__":
    poller(prog_name="chatlanes poller")
