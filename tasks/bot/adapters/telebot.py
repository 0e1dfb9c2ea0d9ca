"""pyTelegramBotAPI: `BOT=mybot:bot` names a TeleBot or an AsyncTeleBot.

Promises that one update is handled at a time, to its end, on the thread or the loop that runs it; that an error which
its exception handler does not call handled is a failed attempt; and that states and next steps are kept with the update
in Redis. Its polling and its own threads are not used. Its HTTP can only be replaced for all bots of a process
(telebot_calls.py): those of other tokens are sent as they would be without us.
"""

from __future__ import annotations

import inspect
from contextvars import ContextVar
from typing import Any

from telebot import TeleBot
from telebot.async_telebot import AsyncTeleBot
from telebot.asyncio_storage import StateMemoryStorage as AsyncMemory
from telebot.handler_backends import MemoryHandlerBackend
from telebot.storage import StateMemoryStorage
from telebot.types import Update

from tasks.bot.adapters import telebot_calls
from tasks.bot.adapters.errors import check_token
from tasks.bot.adapters.telebot_state import AsyncStates, NextSteps, States
from tasks.bot.bot import Bot
from tasks.bot.client import BotApi
from tasks.bot.context import Context

#: What the handlers of the update that is handled here raised.
_failures: ContextVar[list[Exception]] = ContextVar("failures")


def bot_of(found: Any, api: BotApi, said: str) -> Bot:
    """A Bot around it. Raises BotImportError for one that has another token."""
    check_token(found.token, api, said)
    own = found.exception_handler
    is_async = inspect.iscoroutinefunction(getattr(own, "handle", None))
    found.exception_handler = AsyncWitness(own) if is_async else Witness(own)
    return _of_async(found, api) if isinstance(found, AsyncTeleBot) else _of_sync(found, api)


def _of_sync(found: TeleBot, api: BotApi) -> Bot:
    telebot_calls.take_over(found.token, api)
    if found.threaded:
        found.threaded = False
        found.worker_pool.close()
    if isinstance(found.current_states, StateMemoryStorage):
        found.current_states = States()
    if isinstance(found.next_step_backend, MemoryHandlerBackend):
        found.next_step_backend = NextSteps("next")
    if isinstance(found.reply_backend, MemoryHandlerBackend):
        found.reply_backend = NextSteps("reply")

    def handle(ctx: Context) -> None:
        failures: list[Exception] = []
        token = _failures.set(failures)
        try:
            # One at a time: it would sort a batch by kind.
            found.process_new_updates([Update.de_json(ctx.update)])
        finally:
            _failures.reset(token)
        _raise_first(failures)

    return Bot(handle)


def _of_async(found: AsyncTeleBot, api: BotApi) -> Bot:
    telebot_calls.take_over_async(found.token, api)
    if isinstance(found.current_states, AsyncMemory):
        found.current_states = AsyncStates()

    async def handle(ctx: Context) -> None:
        failures: list[Exception] = []
        _failures.set(failures)
        await found.process_new_updates([Update.de_json(ctx.update)])
        _raise_first(failures)

    return Bot(handle)


def _raise_first(failures: list[Exception]) -> None:
    if failures:
        raise failures[0]


class Witness:
    """In the place of a bot's exception handler, which is asked too: TeleBot only logs some of the errors."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def handle(self, exception: Exception) -> bool:
        return _noted(exception, self._own is not None and self._own.handle(exception))


class AsyncWitness(Witness):
    """AsyncTeleBot awaits those whose `handle` is an `async def`."""

    async def handle(self, exception: Exception) -> bool:  # type: ignore[override]
        return _noted(exception, await self._own.handle(exception))


def _noted(exception: Exception, is_handled: Any) -> bool:
    failures = _failures.get(None)
    if failures is not None and not is_handled:
        failures.append(exception)
    return bool(is_handled)
