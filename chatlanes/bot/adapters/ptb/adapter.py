"""python-telegram-bot: `BOT=mybot:application` names an Application.

Guarantees that each update is processed completely on this process's event loop, with handlers of block=False and the
tasks of the application, and that every call and download goes through the bridge. The framework only logs failures of
handlers, tasks and contexts: here they fail the attempt, after the bot's error handlers ran, whose calls are journaled
in a series of their own. Data is in data.py, jobs in job_queue.py; the updater and update processor are not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import cache, partial, wraps
from inspect import getmembers, iscoroutinefunction
from typing import Any
from urllib.parse import unquote

import telegram
from redis.exceptions import RedisError
from telegram import Update
from telegram.error import NetworkError as PtbNetworkError
from telegram.error import RetryAfter
from telegram.ext import Application
from telegram.request import BaseRequest, RequestData

from celery_lanes.errors import LanesError
from chatlanes.bot.adapters import bridge, collected, storage_json
from chatlanes.bot.adapters.errors import check_token, is_interruption, note_failure, raising_failures, warn_of_address
from chatlanes.bot.adapters.ptb.buttons import kept_buttons
from chatlanes.bot.adapters.ptb.data import (
    AnyApplication,
    DataKeeper,
    outline,
    replace_persistence,
    time_out,
    wait_for_handlers,
)
from chatlanes.bot.adapters.ptb.job_plans import JobError
from chatlanes.bot.adapters.ptb.job_queue import LaneJob, LaneJobQueue, queue_of
from chatlanes.bot.adapters.ptb.job_storage import KIND, TIMEOUT
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.bot.coroutines import AsyncHandler, Steps
from chatlanes.bot.event_loop import blocking_executor
from chatlanes.settings.imports import ImportPathError
from chatlanes.telegram.client import BotApi

Callback = Callable[[Any, Any], Coroutine[Any, Any, Any]]

#: The tasks of the current update.
_tasks: ContextVar[list[asyncio.Task[Any]]] = ContextVar("tasks")
#: All updates of the current run, for `context.updates`.
updates_here: ContextVar[list[Update]] = ContextVar("updates")
#: The bot of the current update.
bot_here: ContextVar[telegram.Bot | None] = ContextVar("bot", default=None)


def bot_of(found: Any, api: BotApi, label: str) -> Bot:
    """A Bot for the application. Raises ImportPathError if it is not an Application, or has another token."""
    if not isinstance(found, Application):
        raise ImportPathError(f"{label} must name an Application; a {type(found).__name__} has no handlers.")
    check_token(found.bot.token, api, label)
    # Replaces a private attribute: only the builder accepts a request, and this application is built already.
    found.bot._request = (found.bot._request[0], BridgedRequest(api, found.bot))
    kind: type[telegram.Bot] = type(found.bot)
    found.bot.__class__ = _none_without_result(kind)
    storage_json.register_objects(
        "python-telegram-bot",
        telegram,
        telegram.TelegramObject,
        lambda found: found.to_dict(),
        lambda kind, content: kind.de_json(content, bot_here.get()),
    )
    replace_persistence(found)
    warn_of_address(found.bot.base_url.partition("/bot")[0], api)
    runner = PtbRunner(found, queue_of(found))
    return Bot(AsyncHandler(runner.handle, runner.read_ahead, runner.steps), never_retry=(JobError,))


@cache
def _none_without_result(kind: type[telegram.Bot]) -> type[telegram.Bot]:
    """The class of a bot whose methods return None for a call without a result, which PTB cannot parse."""
    methods = {
        name: bridge.none_without_result(method)
        for name, method in getmembers(kind, iscoroutinefunction)
        if not name.startswith("_")
    }
    return type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **methods})


class PtbRunner:
    """Runs the updates of an application in this process."""

    def __init__(self, application: AnyApplication, jobs: LaneJobQueue) -> None:
        self._application, self._jobs = application, jobs
        self._keeper: DataKeeper | None = None
        self.steps = Steps(self._start, self._stop, passing=(PtbNetworkError, RetryAfter, RedisError))

    def read_ahead(self, ctx: Context) -> None:
        if self._keeper:  # it has started
            self._keeper.read_ahead(ctx)

    async def handle(self, ctx: Context) -> None:
        bot_here.set(self._application.bot)
        if ctx.kind == KIND:
            await (self._time_out(ctx) if TIMEOUT in ctx.update[KIND] else self._run_job(ctx))
            return
        bot = self._application.bot
        updates = [Update.de_json(update, bot) for update in ctx.updates]
        updates_here.set(updates)
        update = updates[-1] if len(updates) == 1 else Update.de_json(collected.newest(ctx.updates), bot)
        assert self._keeper  # noqa: S101  begun
        async with self._keeper.kept(update), kept_buttons(bot, update), no_failures():
            await self._application.process_update(update)

    async def _run_job(self, ctx: Context) -> None:
        job: LaneJob | None = await blocking_executor().call(partial(self._jobs.begin, ctx.update[KIND]))
        if job is None:
            return
        assert self._keeper  # noqa: S101  begun
        assert ctx.stored  # noqa: S101  a job always has a lane
        kept = self._keeper.kept(outline(job.chat_id, job.user_id), is_job=True)
        async with kept, kept_buttons(self._application.bot, None, ctx.stored.message_id), no_failures():
            # Job.run would continue after UPDATE_TIMEOUT.
            await job._run(self._application)
        await blocking_executor().call(partial(self._jobs.end, job))

    async def _time_out(self, ctx: Context) -> None:
        update = Update.de_json(ctx.update[KIND]["update"], self._application.bot)
        updates_here.set([update])
        assert self._keeper  # noqa: S101  begun
        assert ctx.stored  # noqa: S101  a timer always has a lane
        buttons = kept_buttons(self._application.bot, update, ctx.stored.message_id)
        async with self._keeper.kept(update) as slots, buttons, no_failures():
            await time_out(self._application, ctx.update[KIND][TIMEOUT], slots, update)

    async def _start(self) -> None:
        application = self._application
        self._jobs.begin_start()
        await application.initialize()
        application._running = True
        if application.post_init:
            await application.post_init(application)
        await blocking_executor().call(self._jobs.end_start)
        # After post_init, which may add handlers.
        wait_for_handlers(application)
        watch(application)
        self._keeper = DataKeeper(application)

    async def _stop(self) -> None:
        application = self._application
        application._running = False
        if application.post_stop:
            await application.post_stop(application)
        await application.shutdown()
        if application.post_shutdown:
            await application.post_shutdown(application)


class BridgedRequest(BaseRequest):
    """Wraps the request object that the bot was created with, which makes the requests to other addresses."""

    def __init__(self, api: BotApi, bot: telegram.Bot) -> None:
        self._api, self._own = api, bot._request[1]
        self._files = f"{bot.base_file_url}/"

    async def initialize(self) -> None:
        await self._own.initialize()

    async def shutdown(self) -> None:
        await self._own.shutdown()

    @property
    def read_timeout(self) -> float | None:
        return self._own.read_timeout

    async def _request_wrapper(self, *arguments: Any, **named: Any) -> bytes:
        """Re-raises our own errors, which the framework converts to NetworkError; bots would retry that."""
        try:
            return await super()._request_wrapper(*arguments, **named)
        except PtbNetworkError as error:
            if isinstance(error.__cause__, LanesError | bridge.NoResultError):
                raise error.__cause__ from None
            raise

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *timeouts: Any, **named: Any
    ) -> tuple[int, bytes]:
        with bridge.network_errors_as(PtbNetworkError):
            if method == "POST":
                return await self._call(url.rpartition("/")[2], request_data)
            # The colon of the token is encoded as %3A.
            if (file := unquote(url)).startswith(self._files):
                return await bridge.fetch_soon(self._api, file.removeprefix(self._files))
        return await self._own.do_request(url, method, request_data, *timeouts, **named)

    async def _call(self, name: str, request_data: RequestData | None) -> tuple[int, bytes]:
        with bridge.reserved(self._api, name) as caller:
            answered = await bridge.call_soon(caller, name, _params(request_data))
        answered.check_result()
        if name == "getFile":
            self._check_file(answered.content.get("result"))
        return answered.status, answered.body

    def _check_file(self, result: Any) -> None:
        """The framework reads the file of this machine that a `file_path` names, if there is one."""
        if isinstance(result, dict) and isinstance(file_path := result.get("file_path"), str):
            self._api.check_local(file_path)


def _params(request_data: RequestData | None) -> dict[str, Any]:
    if request_data is None:
        return {}
    uploads = {
        part: bridge.file(name, content.read() if hasattr(content, "read") else content)
        for part, (name, content, _) in (request_data.multipart_data or {}).items()
    }
    return {**request_data.parameters, **uploads}


def watch(application: AnyApplication) -> None:
    # The framework creates a context for every error that it catches, provided that there is an error handler.
    kinds = application.context_types
    kinds._context = _WatchedContext(kinds.context)  # type: ignore[assignment]
    own = {_in_own_series(callback): block for callback, block in application.error_handlers.items()}
    application.error_handlers = {_nothing: True, **own}


@asynccontextmanager
async def no_failures() -> AsyncIterator[None]:
    """Wraps the processing of one update. Raises the first failure, after all tasks have ended."""
    tasks: list[asyncio.Task[Any]] = []
    _tasks.set(tasks)
    with raising_failures():
        try:
            yield
            await _ended(tasks)
        finally:
            for task in tasks:
                task.cancel()


async def _ended(tasks: list[asyncio.Task[Any]]) -> None:
    """Wait for the tasks, including those they create. Raises BaseExceptions that are not failures, like ParkUpdate."""
    while tasks:
        outcomes = await asyncio.gather(tasks.pop(0), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception | asyncio.CancelledError):
                raise outcome


class _WatchedContext:
    """Replaces the class of contexts, to see the errors and to add the `updates` of the run."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def from_update(self, update: object, application: AnyApplication) -> Any:
        return _with_updates(self._made(self._kind.from_update, update, application))

    def from_job(self, job: object, application: AnyApplication) -> Any:
        return self._made(self._kind.from_job, job, application)

    def _made(self, make: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return make(*arguments)
        except Exception as error:
            note_failure(error)
            raise

    def from_error(self, update: object, error: Exception, *others: Any, **named: Any) -> Any:
        note_failure(error)
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


_own_create_task = Application.create_task


@wraps(_own_create_task)
def _create_task(self: Any, coroutine: Any, update: object = None, *, name: str | None = None) -> Any:
    """Replaces Application.create_task, because the framework has no hook for it: remembers the task."""
    task = _own_create_task(self, coroutine, update, name=name)
    if (tasks := _tasks.get(None)) is not None:
        tasks.append(task)
    return task


Application.create_task = _create_task  # type: ignore[method-assign]
