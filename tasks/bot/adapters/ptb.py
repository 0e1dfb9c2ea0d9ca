"""python-telegram-bot: `BOT=mybot:application` names an Application.

Promises that an update is processed to its end on this process's event loop, handlers with block=False included; that
its error handlers run and the failure is a failed attempt all the same; and that chat_data, user_data and conversations
are read before each update and kept with it (ptb_data.py). Its updater, job queue and update processor do not run.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any

from telegram import Update
from telegram.ext import Application

from tasks.bot.adapters.errors import check_token
from tasks.bot.adapters.lifetime import AsyncLifetime
from tasks.bot.adapters.ptb_calls import BridgedRequest
from tasks.bot.adapters.ptb_conversations import conversations_of, wait_for_handlers
from tasks.bot.adapters.ptb_data import DataKeeper
from tasks.bot.bot import Bot
from tasks.bot.client import BotApi
from tasks.bot.context import Context

log = logging.getLogger(__name__)

#: What the handlers of the update that is processed here raised.
_failures: ContextVar[list[Exception]] = ContextVar("failures")


def bot_of(found: Application[Any, Any, Any, Any, Any, Any], api: BotApi, said: str) -> Bot:
    """A Bot around it. Raises BotImportError for one that has another token."""
    check_token(found.bot.token, api, said)
    # The builder has a place for a request, but this application is built already.
    found.bot._request = (found.bot._request[0], BridgedRequest(api, found.bot._request[1]))
    wait_for_handlers(found)
    # First, for a later one may stop the others.
    found.error_handlers = {_witness: True, **found.error_handlers}
    lifetime = AsyncLifetime(lambda: _start(found), lambda: _stop(found))
    keeper = DataKeeper(found, conversations_of(found))

    async def handle(ctx: Context) -> None:
        await lifetime.begin()
        update = Update.de_json(ctx.update, found.bot)
        failures: list[Exception] = []
        _failures.set(failures)
        async with keeper.kept(update):
            await found.process_update(update)
            if failures:
                raise failures[0]

    return Bot(handle)


async def _witness(update: object, context: Any) -> None:
    """An error handler. What it sees is raised when the update has been processed."""
    failures = _failures.get(None)
    if failures is not None and isinstance(context.error, Exception):
        failures.append(context.error)


async def _start(application: Application[Any, Any, Any, Any, Any, Any]) -> None:
    await application.initialize()
    if application.post_init:
        await application.post_init(application)
    if application.job_queue and application.job_queue.jobs():
        log.warning("the jobs of the application's job queue do not run here: start them in a process of their own")


async def _stop(application: Application[Any, Any, Any, Any, Any, Any]) -> None:
    if application.post_stop:
        await application.post_stop(application)
    await application.shutdown()
    if application.post_shutdown:
        await application.post_shutdown(application)
