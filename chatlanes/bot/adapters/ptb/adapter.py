"""python-telegram-bot: `BOT=mybot:application` names an Application.

Each update is processed completely on this process's event loop, including handlers with block=False and tasks of the
application; error handlers run, and the failure still fails the attempt. chat_data, user_data and conversations are
read before each update and stored with it (data.py). Jobs are updates too (job_queue.py). The updater and update
processor are not used. With COLLECT it processes the newest update, with the texts of all;
`context.updates` are all of them.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import Any

import telegram
from redis.exceptions import RedisError
from telegram import Update
from telegram.error import NetworkError, RetryAfter
from telegram.ext import Application

from chatlanes.bot.adapters import collected, storage_json
from chatlanes.bot.adapters.errors import check_token, warn_of_address
from chatlanes.bot.adapters.ptb.buttons import Buttons
from chatlanes.bot.adapters.ptb.calls import BridgedRequest
from chatlanes.bot.adapters.ptb.conversations import AnyApplication, wait_for_handlers
from chatlanes.bot.adapters.ptb.data import DataKeeper, Outline, replace_persistence
from chatlanes.bot.adapters.ptb.failures import no_failures, updates_here, watch
from chatlanes.bot.adapters.ptb.job_plans import JobError
from chatlanes.bot.adapters.ptb.job_queue import LaneJob, LaneJobQueue, queue_of
from chatlanes.bot.adapters.ptb.job_storage import KIND, TIMEOUT
from chatlanes.bot.adapters.ptb.timeouts import time_out
from chatlanes.bot.adapters.startup.async_handler import AsyncHandler
from chatlanes.bot.adapters.startup.lifetime import Steps
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.lanes.worker.executor import blocking_executor
from chatlanes.settings.imports import BotImportError
from chatlanes.telegram.client import BotApi


def bot_of(found: Any, api: BotApi, label: str) -> Bot:
    """A Bot for the application. Raises BotImportError if it is not an Application, or has another token."""
    if not isinstance(found, Application):
        raise BotImportError(f"{label} must name an Application; a {type(found).__name__} has no handlers.")
    check_token(found.bot.token, api, label)
    # Replaces a private attribute: only the builder accepts a request, and this application is built already.
    found.bot._request = (found.bot._request[0], BridgedRequest(api, found.bot))
    register_objects()
    replace_persistence(found)
    warn_of_address(found.bot.base_url.partition("/bot")[0], api)
    runner = PtbRunner(found, queue_of(found))
    return Bot(AsyncHandler(runner.handle, runner.read_ahead, runner.steps), never_retry=(JobError,))


class PtbRunner:
    """Runs the updates of an application in this process."""

    def __init__(self, application: AnyApplication, jobs: LaneJobQueue) -> None:
        self._application, self._jobs = application, jobs
        self._buttons = Buttons(application.bot)
        self._keeper: DataKeeper | None = None
        self.steps = Steps(self._start, self._stop, passing=(NetworkError, RetryAfter, RedisError))

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
        async with self._keeper.kept(update), self._buttons.kept(update), no_failures():
            await self._application.process_update(update)

    async def _run_job(self, ctx: Context) -> None:
        job: LaneJob | None = await blocking_executor().call(partial(self._jobs.begin, ctx.update[KIND]))
        if job is None:
            return
        assert self._keeper  # noqa: S101  begun
        assert ctx.stored  # noqa: S101  a job always has a lane
        kept = self._keeper.kept(Outline.of(job.chat_id, job.user_id), is_job=True)
        async with kept, self._buttons.kept(None, ctx.stored.message_id), no_failures():
            # Job.run would continue after UPDATE_TIMEOUT.
            await job._run(self._application)
        await blocking_executor().call(partial(self._jobs.end, job))

    async def _time_out(self, ctx: Context) -> None:
        update = Update.de_json(ctx.update[KIND]["update"], self._application.bot)
        updates_here.set([update])
        assert self._keeper  # noqa: S101  begun
        assert ctx.stored  # noqa: S101  a timer always has a lane
        buttons = self._buttons.kept(update, ctx.stored.message_id)
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


#: The bot of the current update.
bot_here: ContextVar[telegram.Bot | None] = ContextVar("bot", default=None)


def _encode(found: telegram.TelegramObject) -> list[Any]:
    return [type(found).__name__, found.to_dict()]


def _decode(encoded: list[Any]) -> telegram.TelegramObject:
    kind = getattr(telegram, encoded[0], None)
    if not (isinstance(kind, type) and issubclass(kind, telegram.TelegramObject)):
        raise LookupError(
            f"the stored value is a telegram.{encoded[0]}, which this version of python-telegram-bot lacks"
        )
    return kind.de_json(encoded[1], bot_here.get())


def register_objects() -> None:
    """Allow python-telegram-bot's types in stored data."""
    storage_json.register("telegram", telegram.TelegramObject, _encode, _decode)
