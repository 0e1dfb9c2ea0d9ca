"""The log of processes that are not Celery's: one handler, on stderr.

Guarantees that warnings, and errors that end a thread, are lines like all others. Celery's worker and Flower configure
their own handlers; celery_log.py and chatlanes/tasks/flower.py set the same formatters there.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any, NoReturn

from chatlanes.logs.errors import traceback_of
from chatlanes.logs.foreign_text import visible
from chatlanes.logs.ids import LineContext
from chatlanes.logs.lines import JsonLines, TextLines
from chatlanes.logs.redaction import Secrets
from chatlanes.settings import Settings, settings_warnings

TEXT = "%(asctime)s %(levelname)s %(name)s%(_bot)s: %(message)s"

log = logging.getLogger("chatlanes")


def lines_of(settings: Settings, text: str = TEXT, **known: Any) -> logging.Formatter:
    """The formatter for LOG_FORMAT."""
    about = LineContext(bots_of(settings), **known)
    secrets = Secrets.of(settings)
    return JsonLines(about, secrets) if settings.log_format == "json" else TextLines(about, secrets, text)


def bots_of(settings: Settings) -> dict[str, int]:
    """Name (empty for the only one) -> bot id, of the bots whose tokens are known."""
    return {bot.bot_name: bot.bot_id for bot in settings.served if bot.bot_token}


def start_logging(settings: Settings, level: int = logging.INFO, own: str = "poller") -> None:
    """`level` applies to the logger `own` and to all others, except that those never log at DEBUG."""
    handler = logging.StreamHandler()
    handler.setFormatter(lines_of(settings))
    logging.basicConfig(level=max(level, logging.INFO), handlers=[handler])
    logging.getLogger(own).setLevel(level)
    logging.captureWarnings(True)
    threading.excepthook = _thread_ended


def say(settings: Settings, sentence: str, level: int = logging.INFO, error: BaseException | None = None) -> None:
    """Write to stderr, whatever the log's level, and also before the log is configured."""
    about = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord(log.name, level, __file__, 0, sentence, (), about)
    line = lines_of(settings, "%(message)s").format(record)
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - see above


def warn_of_settings(settings: Settings) -> None:
    """A line for each setting that looks misspelled, and for each line of `.env` that is not understood."""
    for sentence in settings_warnings():
        say(settings, sentence, logging.WARNING)


#: The exit code of every command after a wrong setting.
WRONG_SETTING = 2


def give_up(settings: Settings, why: str, cause: BaseException | None = None, code: int = WRONG_SETTING) -> NoReturn:
    """End a process that cannot start, with the traceback of the cause, if there is one, and one sentence."""
    if settings.log_format == "json":
        say(settings, why, logging.CRITICAL, cause)
        sys.exit(code)
    if cause is not None:
        print(visible(traceback_of(cause, Secrets.of(settings))), file=sys.stderr, flush=True)  # noqa: T201 - before a log
    print(visible(why), file=sys.stderr, flush=True)  # noqa: T201 - before a log
    sys.exit(code)


def _thread_ended(what: threading.ExceptHookArgs) -> None:
    if what.exc_value is not None and not isinstance(what.exc_value, SystemExit):
        about = (what.exc_type, what.exc_value, what.exc_traceback)
        log.error("a thread ended with an error: %s", what.thread and what.thread.name, exc_info=about)
