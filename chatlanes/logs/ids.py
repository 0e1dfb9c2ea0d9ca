"""The ids of a log record: its update, chat and attempt, and where it was written.

Guarantees the ids of the running update in every thread, greenlet and coroutine in which its handler runs, and those
of the task that Celery runs or logs elsewhere. The ids are looked up when a line is written, so an update without log
lines costs next to nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Prefix of the thread names of a bot, when one process serves many.
_BOT_THREAD = "bot "
_UPDATE = re.compile(r"(\d+):.")
#: The text that an update's task shows instead of its arguments (chatlanes/updates/intake.py).
_SHOWN = re.compile(r"\(\w+, chat (-?\d+)(?:, update \d+)?\)")

#: The message header with the trace of an update, named as in Celery's instrumentation.
TRACE = "traceparent"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_of(header: object) -> str | None:
    """The id of the trace that the header names; None if it names none."""
    found = _TRACEPARENT.match(header) if isinstance(header, str) else None
    return found[1] if found else None


class Ids(NamedTuple):
    """`task` is Celery's task id: an update's is `<bot>:<update_id>`. `attempt` is the handler's, 1, 2, …"""

    task: str
    chat: int | None = None
    attempt: int | None = None
    trace: str | None = None  #: used where none of its spans is open

    @classmethod
    def shown(cls, task: str, arguments: object, attempt: int | None = None, trace: str | None = None) -> Ids:
        """From the arguments that Celery shows of a task."""
        found = _SHOWN.fullmatch(arguments) if isinstance(arguments, str) else None
        return cls(task, int(found[1]) if found else None, attempt, trace)


def _nobody() -> None:
    return None


_RUNNING: ContextVar[Callable[[], Ids | None]] = ContextVar("ids of the running update", default=_nobody)


@contextmanager
def about(ids: Callable[[], Ids]) -> Iterator[None]:
    """Encloses the run of an update. `ids` is called for each line."""
    token = _RUNNING.set(ids)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def thread_of(bot_name: str) -> str:
    """The name of a thread whose lines are about this bot."""
    return _BOT_THREAD + bot_name


def bot_of_thread(record: logging.LogRecord) -> str:
    """Empty if the thread is not a bot's."""
    name = record.threadName or ""
    return name.removeprefix(_BOT_THREAD) if name.startswith(_BOT_THREAD) else ""


_trace_ids: Callable[[], Mapping[str, str | None]] = dict


def with_traces(ids: Callable[[], Mapping[str, str | None]]) -> None:
    """From now on every line has the fields that `ids` returns where it is written."""
    global _trace_ids
    _trace_ids = ids


@dataclass
class LineContext:
    """The ids that the lines of one process carry. `bots`: name (empty for the only one) -> bot id."""

    bots: Mapping[str, int] = field(default_factory=dict)
    worker: str = ""
    #: Called where no handler runs.
    elsewhere: Callable[[], Ids | None] = _nobody

    def of(self, record: logging.LogRecord) -> dict[str, Any]:
        """The fields that apply, in order."""
        fields: dict[str, Any] = {}
        ids = self._ids(record)
        update = _UPDATE.match(ids.task) if ids else None
        if ids:
            fields["update" if update else "task"] = ids.task
        if update:
            fields |= self._bot(int(update[1]))
        elif name := bot_of_thread(record):
            if name in self.bots:
                fields |= {"bot": self.bots[name], "bot_name": name}
            else:
                fields |= (
                    {"bot": int(name)} if name.isdecimal() else {"bot_name": name}
                )  # the name of an added bot: its id
        elif "" in self.bots and not self.worker:
            fields["bot"] = self.bots[""]
        if ids:
            fields |= {"chat": ids.chat, "attempt": ids.attempt}
        if self.worker:
            fields["worker"] = self.worker
        fields |= _trace_ids() or {"trace_id": ids.trace if ids else None}
        return {name: value for name, value in fields.items() if value is not None}

    def _ids(self, record: logging.LogRecord) -> Ids | None:
        here = _RUNNING.get()() or self.elsewhere()
        # Celery's convention: `data` describes the task that a line is about.
        told = getattr(record, "data", None)
        task = told.get("id") if isinstance(told, dict) else None
        if not isinstance(task, str) or (here is not None and here.task == task):
            return here
        return Ids.shown(task, told.get("args") if isinstance(told, dict) else None)

    def _bot(self, bot_id: int) -> dict[str, Any]:
        names = [name for name, number in self.bots.items() if number == bot_id and name]
        return {"bot": bot_id, **({"bot_name": names[0]} if names else {})}


class UpdateIds(logging.Filter):
    """For log handlers of your own: adds `update`, `chat` and `attempt` to records; "-" outside of a handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        ids = _RUNNING.get()()
        for name, value in (
            ("update", ids and ids.task),
            ("chat", ids and ids.chat),
            ("attempt", ids and ids.attempt),
        ):
            if not hasattr(record, name):
                setattr(record, name, "-" if value is None else value)
        return True
