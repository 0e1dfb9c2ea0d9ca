"""Runs one command of the poller or the receiver: settings, log, traces, signals, exit code.

Exit codes: 0 after SIGTERM or SIGINT; 1 if Telegram refuses the token, Redis is unfit for lanes or a port is in use;
2 for a wrong setting or argument.
"""

import gc
import logging
import sys
from collections.abc import Callable
from typing import NoReturn, TypeVar

import click

from celery_lanes.errors import ServerUnfit
from chatlanes import traces
from chatlanes.logs.process import WRONG_SETTING, say, start_logging, warn_of_settings
from chatlanes.poller.bot_api import TokenRefusedError
from chatlanes.poller.runtime import GaveUpError, Stop, Stopping
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.imports import ImportPathError
from chatlanes.updates.added_bots import Seals

log = logging.getLogger("poller")

#: Runs until it is done or asked to stop; gives the exit code.
Command = Callable[[Settings, Stop], int]

#: For the last traces. The whole shutdown must take at most 2 s.
SEND_TRACES_WITHIN_S = 0.5

AnyCommand = TypeVar("AnyCommand", bound=click.Command)
LEVELS = {"--verbose": logging.DEBUG, "--quiet": logging.ERROR}


def _note(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        ctx.ensure_object(list).append(option.opts[-1])


_LOG_OPTIONS = [
    click.Option([short, long], is_flag=True, expose_value=False, callback=_note, help=means)
    for short, long, means in (
        ("-v", "--verbose", "Log a line for every batch."),
        ("-q", "--quiet", "Log only errors that need your action."),
    )
]


def log_options(command: AnyCommand) -> AnyCommand:
    """Adds -v and -q to a command or a group: they may be given before or after the name of a sub-command."""
    command.params += _LOG_OPTIONS
    return command


def given_log_options() -> list[str]:
    """For another process of this command."""
    return click.get_current_context().ensure_object(list)


def run(command: Command, traced: str = "") -> NoReturn:
    """Ends the process with the exit code of the command. `traced` is the name of the process in traces."""
    level = next((LEVELS[option] for option in given_log_options()), logging.INFO)
    code = _run(command, level, traced)
    gc.freeze()  # Python would free every object when it exits, which took 0.3 s of processor time
    sys.exit(code)


def _run(command: Command, level: int, traced: str) -> int:
    try:
        settings = load()
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the log is not configured yet
        return WRONG_SETTING
    warn_of_settings(settings)
    try:
        for bot in settings.served:
            bot.token  # noqa: B018 - raises
        if settings.bots_key is not None:
            Seals(settings)  # raises
    except SettingsError as error:
        say(settings, str(error), logging.CRITICAL)
        return WRONG_SETTING
    start_logging(settings, level)
    if traced:
        traces.start(traced, settings)
    try:
        return _until_stopped(command, settings)
    finally:
        traces.stop(SEND_TRACES_WITHIN_S)


def _until_stopped(command: Command, settings: Settings) -> int:
    stop = Stop()
    stop.request_on_signals()
    try:
        return command(settings, stop)
    except ImportPathError as error:
        log.error("%s", error, exc_info=error.__cause__)  # the cause: an error inside the imported module
        return WRONG_SETTING
    except (TokenRefusedError, GaveUpError, ServerUnfit) as error:
        log.error("%s", error)
        return 1
    except Stopping:
        log.info("stopped")  # before any update was fetched
        return 0
    except Exception:
        log.exception("the poller failed; Telegram keeps unconfirmed updates")
        return 1
