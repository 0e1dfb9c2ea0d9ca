"""AsyncTeleBot: handles each update completely on this process's event loop, update listeners included.

The guarantees are those of adapter.py; AsyncTeleBot has no next steps. `bot.user` is set before the first update, as
when the bot polls.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

from telebot.async_telebot import AsyncTeleBot
from telebot.asyncio_helper import ApiException, RequestTimeout, session_manager
from telebot.asyncio_storage import StateMemoryStorage, StatePickleStorage
from telebot.asyncio_storage.base_storage import StateDataContext, StateStorageBase
from telebot.types import Update

from chatlanes.bot.adapters.collected import newest
from chatlanes.bot.adapters.startup.async_handler import AsyncHandler
from chatlanes.bot.adapters.startup.lifetime import Steps
from chatlanes.bot.adapters.telebot import async_calls
from chatlanes.bot.adapters.telebot.errors import AsyncErrorCollector, ErrorCollector, raising_failures
from chatlanes.bot.adapters.telebot.state import States
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.telegram.client import BotApi

#: Tasks that telebot started for the current update and does not await.
_begun: ContextVar[list[asyncio.Task[Any]]] = ContextVar("begun")


#: Errors of a start that are worth retrying: Telegram is unavailable, or requires a wait.
_PASSING = (RequestTimeout, ApiException)


def bot_of(found: AsyncTeleBot, api: BotApi) -> Bot:
    async_calls.take_over(found.token, api)
    own = found.exception_handler
    is_async = inspect.iscoroutinefunction(getattr(own, "handle", None))
    found.exception_handler = AsyncErrorCollector(own) if is_async else ErrorCollector(own)
    found._loop_create_task = _begin
    if isinstance(found.current_states, StateMemoryStorage | StatePickleStorage):
        found.current_states = AsyncStates()

    async def handle(ctx: Context) -> None:
        begun: list[asyncio.Task[Any]] = []
        _begun.set(begun)
        with raising_failures():
            try:
                await found.process_new_updates([Update.de_json(newest(ctx.updates))])
            finally:
                outcomes = await asyncio.gather(*begun, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    return Bot(AsyncHandler(handle, steps=Steps(lambda: _start(found), _stop, _PASSING)))


def _begin(listener: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    task = asyncio.get_running_loop().create_task(listener)
    _begun.get().append(task)
    return task


async def _start(found: AsyncTeleBot) -> None:
    if found.user is None:
        found._user = await found.get_me()


async def _stop() -> None:
    if session_manager.session is not None:
        await session_manager.session.close()


_ASYNC = frozenset({"set_state", "get_state", "delete_state", "get_data", "set_data", "reset_data", "save"})


class AsyncStates(StateStorageBase):
    """Replaces StateMemoryStorage."""

    def __init__(self) -> None:
        self._states = States()

    def __getattribute__(self, name: str) -> Any:
        if name not in _ASYNC:
            return super().__getattribute__(name)
        found = getattr(self._states, name)

        async def on_a_thread(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(found, *arguments, **named)

        return on_a_thread

    def get_interactive_data(self, chat_id: int, user_id: int, *where: Any, **place: Any) -> StateDataContext:
        """For `async with bot.retrieve_data(…) as data`, which saves the data at its end."""
        return StateDataContext(self, chat_id, user_id, *where, **place)
