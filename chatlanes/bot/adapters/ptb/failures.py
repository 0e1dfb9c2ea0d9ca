"""What goes wrong in an Application, wherever it is only logged; and what its handlers have left to be waited for.

Promises that an update whose handlers, tasks or context raised is known to have failed, after the bot's own error
handlers ran: their calls have places of their own in the journal, lest they are taken for the handlers'. Promises too
that a task made with `application.create_task` has ended before its update is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from telegram.ext import Application

from chatlanes.bot.adapters import bridge
from chatlanes.bot.adapters.ptb.conversations import AnyApplication

Callback = Callable[[Any, Any], Coroutine[Any, Any, Any]]

#: Of the update that is processed here.
_failures: ContextVar[list[Exception]] = ContextVar("failures")
_tasks: ContextVar[list[asyncio.Task[Any]]] = ContextVar("tasks")


def watch(application: AnyApplication) -> None:
    # Every error that the framework catches comes by here, if there is an error handler at all.
    kinds = application.context_types
    kinds._context = _WatchedContext(kinds.context)  # type: ignore[assignment]
    own = {_beside(callback): block for callback, block in application.error_handlers.items()}
    application.error_handlers = {_nothing: True, **own}


@asynccontextmanager
async def no_failures() -> AsyncIterator[None]:
    """Around the processing of one update. Raises the first failure, when all has ended."""
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
    """Those that they make themselves too. Raises what is no failure, such as ParkUpdate."""
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
    """In the place of the class that contexts are made with."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def from_update(self, update: object, application: AnyApplication) -> Any:
        try:
            return self._kind.from_update(update, application)
        except Exception as error:
            _note(error)
            raise

    def from_error(self, update: object, error: Exception, *others: Any, **named: Any) -> Any:
        _note(error)
        return self._kind.from_error(update, error, *others, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


def _beside(callback: Callback) -> Callback:
    @wraps(callback)
    async def run(update: object, context: Any) -> Any:
        with bridge.beside("error/"):
            return await callback(update, context)

    return run


async def _nothing(update: object, context: Any) -> None:
    """An error handler."""


def _remember_tasks() -> None:
    """An application has no place for this, but its class."""
    create = Application.create_task

    @wraps(create)
    def create_task(self: Any, coroutine: Any, update: object = None, *, name: str | None = None) -> Any:
        task = create(self, coroutine, update, name=name)
        if (tasks := _tasks.get(None)) is not None:
            tasks.append(task)
        return task

    Application.create_task = create_task  # type: ignore[method-assign]


_remember_tasks()
