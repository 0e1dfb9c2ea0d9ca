"""The command line: reads arguments and settings, runs one command, returns its exit code.

Exit codes: 0 after SIGTERM or SIGINT; 1 if Telegram refuses the token, Redis is unfit for lanes or a port is in use;
2 for a wrong setting or argument.
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


#: For the last traces. The whole shutdown must take at most 2 s.
SEND_TRACES_WITHIN_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    given = _read(arguments)
    try:
        settings = load()
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the log is not configured yet
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
    # Sub-commands accept these options too. SUPPRESS keeps a value that was given before the name of the sub-command.
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("-v", "--verbose", action="store_true", help="a log line for every batch")
    common.add_argument("-q", "--quiet", action="store_true", help="log only errors that need your action")
    parser = argparse.ArgumentParser(
        prog="chatlanes poller",
        description="Appends updates from Telegram to the lanes. Settings come from the environment and .env.",
        parents=[common],
    )
    parser.set_defaults(run=_poll)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    polling = commands.add_parser("poll", help="fetch updates by long polling (the default)", parents=[common])
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
    stop.request_on_signals()
    try:
        return command(settings, stop, given)
    except ImportPathError as error:
        log.error("%s", error, exc_info=error.__cause__)  # the cause: an error inside the imported module
        return 2
    except (TokenRefusedError, GaveUpError, ServerUnfit) as error:
        log.error("%s", error)
        return 1
    except Stopping:
        log.info("stopped")  # before any update was fetched
        return 0
    except Exception:
        log.exception("the poller failed; Telegram keeps unconfirmed updates")
        return 1


def _poll(settings: Settings, stop: Stop, given: argparse.Namespace) -> int:
    """Polls one bot on this thread, or each of several on its own thread. Ends with 1 if none of them can be polled."""
    for bot in settings.served:
        check(bot)
    with present("poller", settings, stop.sleep):
        if settings.bots is None:
            poller_of(settings, stop).run()
        elif not poll_all(settings.served, lambda bot: poller_of(bot, stop).run(), stop):
            log.error("no bot can be polled")
            return 1
    log.info("stopped")
    return 0


#: Commands that append updates, and the names of their processes in traces.
TRACED: dict[Command, str] = {_poll: "poller", replay: "replay", webhook.receive: "receiver"}

if __name__ == "__main__":
    sys.exit(main())
