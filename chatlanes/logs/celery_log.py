"""Celery's logging with the lines of this package. `-l`, `-f`, colours and redirected prints work as in Celery.

Guarantees that with LOG_FORMAT=json a worker writes nothing but JSON lines, in its children and at its end too, except
before its settings are read. Celery configures the root logger; a bot that configures logging when it is imported keeps
its configuration, and can use `chatlanes.logs.JsonLines` and `UpdateIds` there.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from typing import Any

from celery._state import get_current_task
from celery.app.log import Logging
from celery.apps import worker as program
from celery.utils.log import ColorFormatter, LoggingProxy
from kombu.utils.encoding import safe_str

from celery_lanes.protocol import envelope
from chatlanes.logs.ids import TRACE, Ids, LineContext, trace_of
from chatlanes.logs.lines import JsonLines, TextLines
from chatlanes.logs.process import bots_of
from chatlanes.logs.redaction import Secrets
from chatlanes.settings import Settings

logger = logging.getLogger("celery.worker")


class WorkerText(TextLines, ColorFormatter):
    """Celery's lines with ids."""


class PrintedLines(LoggingProxy):
    """One log line for each `print`, which writes its arguments one by one."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self._begun: dict[int, str] = {}  # by thread or greenlet

    def write(self, data: Any) -> int:
        here = threading.get_ident()
        text = self._begun.pop(here, "") + safe_str(data)
        if text.endswith("\n"):
            return int(super().write(text))
        self._begun[here] = text
        return len(text)

    def flush(self) -> None:
        """Also called by Python when it ends: then nothing may be left of gevent."""
        if self._begun and (text := self._begun.pop(threading.get_ident(), "")):
            super().write(text)


class WorkerLog(Logging):
    """The value of `app.log`."""

    def __init__(self, app: Any, settings: Settings) -> None:
        super().__init__(app)
        self._is_json = settings.log_format == "json"
        self._secrets = Secrets.of(settings)
        self._known = LineContext(bots_of(settings), elsewhere=running_task)

    def setup(self, *arguments: Any, hostname: str | None = None, **how: Any) -> Any:
        """Called in the main process, and again in each child."""
        self._known.worker = hostname or ""
        return super().setup(*arguments, hostname=hostname, **how)

    def setup_handlers(
        self, logger: Any, logfile: Any, _format: str, colorize: Any, formatter: Any = None, **how: Any
    ) -> Any:
        """The same lines for tasks and for everything else; the ids tell them apart."""
        return super().setup_handlers(logger, logfile, self.format, colorize, formatter=self._lines, **how)

    def redirect_stdouts_to_logger(
        self, logger: Any, loglevel: Any = None, stdout: bool = True, stderr: bool = True
    ) -> PrintedLines:
        proxy = PrintedLines(logger, loglevel)
        sys.stdout, sys.stderr = proxy if stdout else sys.stdout, proxy if stderr else sys.stderr
        return proxy

    def _lines(self, fmt: str, datefmt: str | None = None, use_color: bool = False) -> logging.Formatter:
        if self._is_json:
            return JsonLines(self._known, self._secrets)
        how = {"datefmt": datefmt} if datefmt else {}  # Celery 5.6 has no setting for it, and knows no such argument
        return WorkerText(self._known, self._secrets, fmt, use_color=use_color, **how)


def running_task() -> Ids | None:
    """The task that Celery runs on this thread. Celery logs its end after the handler's own context has ended."""
    task = get_current_task()
    request = task.request if task else None
    if request is None or request.id is None:
        return None
    lane = request.get(envelope.LANE)
    attempt = lane["failed"] + lane["died"] + 1 if lane else None
    return Ids.shown(request.id, request.get("argsrepr"), attempt, trace_of(request.get(TRACE)))


def say_all_in_json(worker: Any, settings: Settings) -> None:
    """For the start of a worker with LOG_FORMAT=json: no banner, and JSON lines before the log is configured and from
    signal handlers.
    """
    worker.quiet = True
    lines = JsonLines(LineContext(worker=worker.hostname), Secrets.of(settings))
    if logging.lastResort is not None:  # for lines before the log is configured, such as those of a bot's import
        logging.lastResort.setFormatter(lines)
    # Called in signal handlers, which must not wait for the lock of a log handler, and by greenlets.
    write = program._original_os_write

    def say(words: object, stream: Any = None) -> None:
        record = logging.LogRecord(logger.name, logging.WARNING, __file__, 0, str(words).strip(), (), None)
        stream = stream or sys.__stderr__
        write(stream.fileno(), lines.format(record).encode() + os.linesep.encode())

    def warn(message: Warning | str, *_: Any) -> None:
        """Until Celery sends warnings to its log."""
        say(message)

    warnings.showwarning = warn  # type: ignore[assignment]  # fewer parameters
    program.safe_say = say
