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

from celery_lanes.errors import ServerUnfit
from chatlanes.logs.ids import thread_of
from chatlanes.poller.bot_api import TokenRefusedError
from chatlanes.poller.factory import check, poller_of
from chatlanes.poller.program import log_options, run
from chatlanes.poller.replay import replay
from chatlanes.poller.runtime import GaveUpError, Stop, Stopping
from chatlanes.poller.webhook.command import webhook
from chatlanes.settings import Settings
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.deployments import present

log = logging.getLogger("poller")

#: Errors that no retry fixes. The message says what to do.
FINAL = (TokenRefusedError, GaveUpError, ServerUnfit, ImportPathError)
#: After an unexpected failure. The process continues with the other bots, so no supervisor restarts this one.
RESTART_AFTER_S = 30.0

#: Polls one bot until the stop request.
Poll = Callable[[Settings], None]


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


# -- many bots


def poll_all(bots: Sequence[Settings], poll: Poll, stop: Stop) -> bool:
    """Polls every bot until the stop request. False if none of them could be polled."""
    started = [_BotThread(bot, poll, stop) for bot in bots]
    for each in started:
        each.thread.start()
    for each in started:
        each.thread.join()
    return not all(each.has_failed for each in started)


class _BotThread:
    """The thread of one bot. It has the name of the bot, which each of its log lines contains."""

    def __init__(self, settings: Settings, poll: Poll, stop: Stop) -> None:
        self.thread = Thread(target=self._until_it_ends, name=thread_of(settings.bot_name), daemon=True)
        self.has_failed = False
        self._settings = settings
        self._poll = poll
        self._stop = stop

    def _until_it_ends(self) -> None:
        try:
            while not self._stop.is_requested:
                self._once()
        except Stopping:
            pass
        except FINAL as error:
            self.has_failed = True
            log.error("%s. This bot is not polled until the poller is restarted; the others are.", error)

    def _once(self) -> None:
        try:
            self._poll(self._settings)
        except FINAL:
            raise
        except Exception:
            log.exception("failed; restarts in %d s. Telegram keeps unconfirmed updates", RESTART_AFTER_S)
            self._stop.sleep(RESTART_AFTER_S)


if __name__ == "__main__":
    poller(prog_name="chatlanes poller")
