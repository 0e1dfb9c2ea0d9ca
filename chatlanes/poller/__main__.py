"""The command line: reads arguments and settings, runs one command, returns its exit code.

Exit codes: 0 after SIGTERM or SIGINT, 1 when Telegram refuses the token, Redis cannot carry lanes or a port is taken,
2 for a wrong setting or argument. Builds nothing itself: poller.factory does.
"""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from chatlanes import traces
from chatlanes.lanes.errors import ServerUnfit
from chatlanes.logs.process import say, start_logging, warn_of_settings
from chatlanes.poller.factory import check, poller_of
from chatlanes.poller.polling import poll_all
from chatlanes.poller.replay import add_arguments, replay
from chatlanes.poller.responses import TokenRefusedError
from chatlanes.poller.runtime import GaveUpError, Stop, Stopping
from chatlanes.poller.webhook import command as webhook
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.deployments import present

log = logging.getLogger("poller")

#: Runs until it is done or asked to stop; gives the exit code.
Command = Callable[[Settings, Stop, argparse.Namespace], int]


#: At the end. All of it is to be over within 2 s.
SEND_TRACES_WITHIN_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    given = _read(arguments)
    try:
        settings = load()
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - nobody knows yet what the log is to look like
        return 2
    warn_of_settings(settings)
    try:
        for bot in settings.served:
            bot.token  # noqa: B018 - raises
    except SettingsError as error:
        say(settings, str(error), logging.CRITICAL)
        return 1
    start_logging(settings, _level(given))
    if given.run in TRACED:
        traces.start(TRACED[given.run], settings)
    try:
        return _run(given.run, settings, given)
    finally:
        traces.stop(SEND_TRACES_WITHIN_S)


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    # On each sub-command too, where SUPPRESS keeps what was said before its name.
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("-v", "--verbose", action="store_true", help="a log line for every batch")
    common.add_argument("-q", "--quiet", action="store_true", help="log nothing but errors that need you")
    parser = argparse.ArgumentParser(
        prog="chatlanes poller",
        description="Takes updates from Telegram into the lanes. Its settings come from the environment and .env.",
        parents=[common],
    )
    parser.set_defaults(run=_poll)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    polling = commands.add_parser("poll", help="by long polling (what it does without a command)", parents=[common])
    polling.set_defaults(run=_poll)
    webhook.add_to(commands, common)
    replaying = commands.add_parser("replay", help="append the updates of a file to their lanes", parents=[common])
    add_arguments(replaying)
    replaying.set_defaults(run=replay)
    return parser.parse_args(arguments, argparse.Namespace(verbose=False, quiet=False))


def _level(given: argparse.Namespace) -> int:
    return logging.DEBUG if given.verbose else logging.ERROR if given.quiet else logging.INFO


def _run(command: Command, settings: Settings, given: argparse.Namespace) -> int:
    stop = Stop()
    stop.ask_on_signals()
    try:
        return command(settings, stop, given)
    except ImportPathError as error:
        log.error("%s", error, exc_info=error.__cause__)  # what failed inside of the function's own module
        return 2
    except (TokenRefusedError, GaveUpError, ServerUnfit) as error:
        log.error("%s", error)
        return 1
    except Stopping:
        log.info("stopped")  # before there was anything in hand
        return 0
    except Exception:
        log.exception("the poller failed; Telegram keeps what is not confirmed")
        return 1


def _poll(settings: Settings, stop: Stop, given: argparse.Namespace) -> int:
    """One bot on this thread, many on one each; those that cannot be polled end this only when they are all."""
    for bot in settings.served:
        check(bot)
    with present("poller", settings, stop.sleep):
        if settings.bots is None:
            poller_of(settings, stop).run()
        elif not poll_all(settings.served, lambda bot: poller_of(bot, stop).run(), stop):
            log.error("no bot is left that could be polled")
            return 1
    log.info("stopped")
    return 0


#: Commands that bring updates, and what their processes are called.
TRACED: dict[Command, str] = {_poll: "poller", replay: "replay", webhook.receive: "receiver"}

if __name__ == "__main__":
    sys.exit(main())
