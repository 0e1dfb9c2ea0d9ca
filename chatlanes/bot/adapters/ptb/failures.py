"""Detects failures that an Application only logs, and waits for the tasks of its handlers.

An update whose handlers, tasks or context raised fails, after the bot's error handlers ran; the calls of error handlers
are journaled in a series of their own. Tasks made with `application.create_task` end before their update is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from telegram import Update
from telegram.ext import Application

from chatlanes.bot.adapters import bridge
from chatlanes.bot.adapters.errors import is_interruption
from chatlanes.bot.adapters.ptb.conversations import AnyApplication

Callback = Callable[[Any, Any], Coroutine[Any, Any, Any]]

#: The failures and tasks of the current update.
_failures: ContextVar[list[Exception]] = ContextVar("failures")
_tasks: ContextVar[list[asyncio.Task[Any]]] = ContextVar("tasks")
#: All updates of the current run, for `context.updates`.
updates_here: ContextVar[list[Update]] = ContextVar("updates")


def watch(application: AnyApplication) -> None:
    # The framework creates a context for every error that it catches, provided that there is an error handler.
    kinds = application.context_types
    kinds._context = _WatchedContext(kinds.context)  # type: ignore[assignment]
    own = {_in_own_series(callback): block for callback, block in application.error_handlers.items()}
    application.error_handlers = {_nothing: True, **own}


@asynccontextmanager
async def no_failures() -> AsyncIterator[None]:
    """Wraps the processing of one update. Raises the first failure, after all tasks have ended."""
    failures: list[Exception] = []
    tasks: list[asyncio.Task[Any]] = []
    _failures.set(failures)
    _tasks.set(tasks)
    try:
        yield
        await _ended(tasks)
    finally:
        for task in tasks:
            task.cancel()
    if failures:
        raise failures[0]


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    """Wait for the tasks, including those they create. Raises BaseExceptions that are not failures, like ParkUpdate."""
    while tasks:
        outcomes = await asyncio.gather(tasks.pop(0), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception | asyncio.CancelledError):
                raise outcome


def _note(error: Exception) -> None:
    failures = _failures.get(None)
    if failures is not None and error not in failures:
        failures.append(error)


class _WatchedContext:
    """Replaces the class of contexts, to see the errors and to add the `updates` of the run."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def from_update(self, update: object, application: AnyApplication) -> Any:
        try:
            return _with_updates(self._kind.from_update(update, application))
        except Exception as error:
            _note(error)
            raise

    def from_job(self, job: object, application: AnyApplication) -> Any:
        try:
            return self._kind.from_job(job, application)
        except Exception as error:
            _note(error)
            raise

    def from_error(self, update: object, error: Exception, *others: Any, **named: Any) -> Any:
        _note(error)
        return _with_updates(self._kind.from_error(update, error, *others, **named))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


def _with_updates(context: Any) -> Any:
    """A context with `updates`, unless the bot's own class of contexts defines that name."""
    if not hasattr(type(context), "updates") and (updates := updates_here.get(None)) is not None:
        context.updates = updates
    return context


def _in_own_series(callback: Callback) -> Callback:
    @wraps(callback)
    async def run(update: object, context: Any) -> Any:
        if is_interruption(context.error):
            return None
        with bridge.in_series("error/"):
            return await callback(update, context)

    return run


async def _nothing(update: object, context: Any) -> None:
    """An error handler, so that there is at least one."""


def _remember_tasks() -> None:
    """Replace Application.create_task on the class, because the framework has no hook for it."""
    create = Application.create_task

    @wraps(create)
    def create_task(self: Any, coroutine: Any, update: object = None, *, name: str | None = None) -> Any:
        task = create(self, coroutine, update, name=name)
        if (tasks := _tasks.get(None)) is not None:
            tasks.append(task)
        return task

    Application.create_task = create_task  # type: ignore[method-assign]


_remember_tasks()
