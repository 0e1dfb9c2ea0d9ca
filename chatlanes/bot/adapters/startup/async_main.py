"""Runs a bot whose BOT names an `async def` without parameters: a `main` that polls, or a factory.

The function runs once in each process that handles updates, on the event loop of its handlers. The bot is the object
that it would poll with or that it returns; the polling call returns only when the process shuts down, so that the
function can clean up. Nothing polls, and no webhook is set or deleted.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from chatlanes.bot.adapters.errors import PermanentError
from chatlanes.bot.adapters.startup import api_server, job_queue, polling
from chatlanes.bot.adapters.startup.async_handler import AsyncHandler, is_async
from chatlanes.bot.adapters.startup.lifetime import Steps
from chatlanes.bot.adapters.startup.program import PollingRefused
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.settings.imports import BotImportError
from chatlanes.telegram.client import BotApi

log = logging.getLogger(__name__)

#: How long the function may clean up when its process ends, in seconds, after its shutdown hooks.
CLEANUP_S = 5.0


class NotYetError(Exception):
    """The bot cannot start now, because Telegram is unavailable."""


class AsyncMain:
    """The `async def` of one bot. `bot_of` makes a Bot from the object that it polls with or returns."""

    def __init__(
        self, function: Callable[[], Coroutine[Any, Any, Any]], api: BotApi, label: str, bot_of: Callable[[Any], Bot]
    ) -> None:
        self._function, self._api, self._label, self._bot_of = function, api, label, bot_of
        self._command_line = sys.argv
        self._task: asyncio.Task[Any] | None = None
        self._polling: polling.Polling | None = None
        self._handler: AsyncHandler | None = None

    def bot(self) -> Bot:
        """The Bot for the worker, which exists before the function has run."""
        steps = Steps(self._start, self._stop, passing=(NotYetError,))
        return Bot(AsyncHandler(self._handle, self._before, steps), never_retry=(PermanentError,))

    async def _handle(self, ctx: Context) -> Any:
        assert self._handler  # noqa: S101  updates come after the start
        return await self._handler(ctx)

    def _before(self, ctx: Context) -> None:
        if self._handler:
            self._handler.before(ctx)

    async def _start(self) -> None:
        if self._handler is None:
            self._handler = self._checked(self._bot_of(await self._made()))
        if steps := self._handler.steps:
            try:
                await steps.start()
            except steps.passing as error:
                raise NotYetError(f"{type(error).__name__}: {error}") from error

    async def _stop(self) -> None:
        if self._handler and self._handler.steps:
            await self._handler.steps.stop()
        if self._polling and self._task:
            self._polling.end()
            await asyncio.wait([self._task], timeout=CLEANUP_S)
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled() and (error := self._task.exception()):
                log.warning("%s() failed after its polling call: %r", self._label, error)

    async def _made(self) -> Any:
        """The object that the function polls with or returns. Raises whatever it raises, and BotImportError."""
        self._polling = polling.Polling()
        self._task = asyncio.create_task(self._run(self._polling))
        own, sys.argv = sys.argv, self._command_line
        await asyncio.wait([self._task, self._polling.bot], return_when=asyncio.FIRST_COMPLETED)
        sys.argv = own
        if self._polling.bot.done():
            return self._polling.bot.result()
        made = self._task.result()
        if made is None:
            raise BotImportError(f"{self._label}() returned None and did not poll: return the bot from it.")
        return made

    async def _run(self, expected: polling.Polling) -> Any:
        try:
            with api_server.used(self._api), job_queue.replaced(), polling.expected(expected):
                return await self._function()
        except PollingRefused as started:
            return started.bot
        except SystemExit as error:  # it would end the event loop
            raise BotImportError(f"{self._label}() ended with SystemExit({error}).") from error

    def _checked(self, bot: Bot) -> AsyncHandler:
        """The handler of the bot. Raises BotImportError if the bot has settings that a worker must know before it
        starts.
        """
        if not is_async(bot.handle):
            raise BotImportError(f"{self._label}() created a bot with plain `def` handlers: make it a plain `def` too.")
        is_own = all(issubclass(each, PermanentError) for each in bot.never_retry)
        if not is_own or bot.on_error or bot.on_timeout or bot.session != "chat":
            raise BotImportError(
                f"{self._label}() created a bot with hooks, never_retry or a session setting (GLOBAL_USER is one): a "
                "worker must know them before it starts, so create this bot when its module is imported."
            )
        return bot.handle if isinstance(bot.handle, AsyncHandler) else AsyncHandler(bot.handle)
