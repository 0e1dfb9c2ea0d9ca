"""python-telegram-bot: `BOT=mybot:application` names an Application.

Each update is processed completely on this process's event loop, including handlers with block=False and tasks of the
application; error handlers run, and the failure still fails the attempt. chat_data, user_data and conversations are
read before each update and stored with it (data.py). The updater, job queue and update processor are not used. With
COLLECT it processes the newest update; `context.updates` are all of them.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import telegram
from telegram import Update
from telegram.error import NetworkError, RetryAfter
from telegram.ext import Application

from chatlanes.bot.adapters import storage_json
from chatlanes.bot.adapters.errors import check_token
from chatlanes.bot.adapters.ptb.buttons import Buttons
from chatlanes.bot.adapters.ptb.calls import BridgedRequest
from chatlanes.bot.adapters.ptb.conversations import AnyApplication, wait_for_handlers
from chatlanes.bot.adapters.ptb.data import DataKeeper, replace_persistence
from chatlanes.bot.adapters.ptb.failures import no_failures, updates_here, watch
from chatlanes.bot.adapters.ptb.unsupported import NoJobsError, switch_off
from chatlanes.bot.adapters.startup.async_handler import AsyncHandler
from chatlanes.bot.adapters.startup.lifetime import Steps
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
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
    switch_off(found, api)
    runner = PtbRunner(found)
    return Bot(AsyncHandler(runner.handle, runner.read_ahead, runner.steps), never_retry=(NoJobsError,))


class PtbRunner:
    """Runs the updates of an application in this process."""

    def __init__(self, application: AnyApplication) -> None:
        self._application = application
        self._buttons = Buttons(application.bot)
        self._keeper: DataKeeper | None = None
        self.steps = Steps(self._start, self._stop, passing=(NetworkError, RetryAfter))

    def read_ahead(self, ctx: Context) -> None:
        if self._keeper:  # it has started
            self._keeper.read_ahead(ctx)

    async def handle(self, ctx: Context) -> None:
        bot_here.set(self._application.bot)
        updates = [Update.de_json(update, self._application.bot) for update in ctx.updates]
        updates_here.set(updates)
        update = updates[-1]
        assert self._keeper  # noqa: S101  begun
        async with self._keeper.kept(update), self._buttons.kept(update), no_failures():
            await self._application.process_update(update)

    async def _start(self) -> None:
        application = self._application
        await application.initialize()
        application._running = True
        if application.post_init:
            await application.post_init(application)
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
