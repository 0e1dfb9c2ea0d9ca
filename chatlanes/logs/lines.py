"""Formats log records: as text, or as one JSON object per line.

Guarantees that a JSON record is one line, whatever was logged, with the same field names in every process, and that
neither format contains secrets. Raises nothing: logging must not fail the code that logs.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import orjson

from chatlanes.logs.errors import bounded, traceback_of
from chatlanes.logs.foreign_text import indented, visible
from chatlanes.logs.ids import LineContext, bot_of_thread
from chatlanes.logs.redaction import Secrets

#: Attributes of every record, and those that libraries add: Celery's `data`, tornado's colours. None is a field.
_NO_FIELDS = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "data", "color", "end_color"}


#: Characters of a line, or of a field of a JSON line.
LONGEST_LINE = 100_000


class TextLines(logging.Formatter):
    """The ids follow the message, as in `[update=123456:17 chat=7 attempt=2]`; the bot is a part of the first.

    A message of several lines is indented after its first one.
    """

    def __init__(self, known: LineContext, secrets: Secrets, fmt: str | None = None, **how: Any) -> None:
        super().__init__(fmt, **how)
        self._known = known
        self._secrets = secrets

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        record._bot = f" [{name}]" if (name := bot_of_thread(record)) else ""
        record.message = indented(record.message)
        line = super().formatMessage(record)
        ids = [
            f"{name}={value}"
            for name, value in self._known.of(record).items()
            if name not in ("bot", "bot_name", "worker", "span_id")
        ]
        return f"{line} [{visible(' '.join(ids))}]" if ids else line

    def format(self, record: logging.LogRecord) -> str:
        if record.exc_text:  # from another formatter
            record.exc_text = visible(record.exc_text)
        return bounded(super().format(record), self._secrets, LONGEST_LINE)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        return visible(_exception(ei, self._secrets))


class JsonLines(logging.Formatter):
    """One object per line. Values passed by `extra=` have fields of their own, unless the name is taken."""

    def __init__(self, known: LineContext | None = None, secrets: Secrets | None = None, **_: Any) -> None:
        super().__init__()
        self._known = known or LineContext()
        self._secrets = secrets or Secrets()

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
            **self._known.of(record),
            "pid": record.process,
        }
        if record.processName not in (None, "MainProcess"):
            fields["process"] = record.processName
        for name, value in vars(record).items():
            if name not in _NO_FIELDS and not name.startswith("_"):
                fields.setdefault(name, value)
        if traceback := self._traceback(record):
            fields["traceback"] = traceback
        for name, value in fields.items():
            if isinstance(value, str):
                fields[name] = bounded(value, self._secrets, LONGEST_LINE)
        return self._secrets.cut(visible(_json(fields)))

    def _traceback(self, record: logging.LogRecord) -> str:
        parts = []
        if isinstance(record.exc_info, tuple) and record.exc_info[0] is not None:
            parts.append(self.formatException(record.exc_info))
        elif record.exc_text:
            parts.append(record.exc_text)
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return "\n".join(parts)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the name is logging's
        return _exception(ei, self._secrets)


def _exception(ei: Any, secrets: Secrets) -> str:
    _, error, at = ei
    if error is None:
        return "NoneType: None"  # as logging's own
    try:
        return traceback_of(error, secrets, at).rstrip("\n")
    except Exception as trouble:  # an error that cannot be formatted
        return f"{type(error).__name__} (its traceback cannot be shown: {type(trouble).__name__})"


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception as trouble:  # its arguments do not fit, or cannot be shown
        return f"{record.msg} ({type(trouble).__name__} while formatting it)"


def _json(fields: dict[str, Any]) -> str:
    try:
        return orjson.dumps(fields, default=_shown, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # half a surrogate pair, a circular reference
        return json.dumps({name: value if isinstance(value, int) else _shown(value) for name, value in fields.items()})


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception as trouble:
        return f"({type(value).__name__}: {type(trouble).__name__} while formatting it)"
