"""Gives applications of python-telegram-bot their job queue while their module is imported, or their `main` runs.

Without APScheduler they would have none, and with it the jobs would exist in one process only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import ModuleType
from typing import Any

from chatlanes.bot.adapters.startup.import_hook import on_import

#: Imported by name, as all adapters are: only a process that has the framework can import it.
ADAPTER = "chatlanes.bot.adapters.ptb.job_queue"

_here: ContextVar[bool] = ContextVar("applications that are made here have our job queue", default=False)


@contextmanager
def replaced() -> Iterator[None]:
    """Wraps code that creates a bot."""
    on_import("telegram.ext._application", _change)
    token = _here.set(True)
    try:
        yield
    finally:
        _here.reset(token)


def _change(module: ModuleType) -> None:
    own = module.Application.job_queue

    def job_queue(application: Any) -> Any:
        if not _here.get():
            return own.fget(application)
        return import_module(ADAPTER).queue_of(application)

    module.Application.job_queue = property(job_queue, doc=own.__doc__)
