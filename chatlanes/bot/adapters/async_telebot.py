"""pyTelegramBotAPI: `BOT=mybot:bot` names an AsyncTeleBot.

The guarantees are those of telebot.py; updates are handled on this process's event loop. `bot.user` is set before the
first update. telebot has no setting for its sender here, so the functions of `asyncio_helper` that send and download
are replaced, for all bots.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

from telebot import asyncio_helper
from telebot.async_telebot import AsyncTeleBot
from telebot.asyncio_storage import StateMemoryStorage, StatePickleStorage
from telebot.asyncio_storage.base_storage import StateDataContext, StateStorageBase
from telebot.types import Update

from chatlanes.bot.adapters import bridge
from chatlanes.bot.adapters.collected import newest
from chatlanes.bot.adapters.errors import raising_failures
from chatlanes.bot.adapters.telebot import (
    AsyncErrorCollector,
    ErrorCollector,
    check,
    check_list,
    params_of,
    return_none_for_lists,
    served,
)
from chatlanes.bot.adapters.telebot_state import States
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.bot.coroutines import AsyncHandler, Steps
from chatlanes.telegram.client import BotApi

#: Tasks that telebot started for the current update and does not await.
_begun: ContextVar[list[asyncio.Task[Any]]] = ContextVar("begun")

#: Errors of a start that are worth retrying: Telegram is unavailable, or requires a wait.
_PASSING = (asyncio_helper.RequestTimeout, asyncio_helper.ApiException)

_own_request = asyncio_helper._process_request
_own_download = asyncio_helper.download_file


def bot_of(found: AsyncTeleBot, api: BotApi, label: str) -> Bot:
    """A Bot for the telebot. Raises ImportPathError if its token differs from BOT_TOKEN."""
    check(found, api, label)
    served[found.token] = api
    asyncio_helper._process_request, asyncio_helper.download_file = _process_request, _download
    return_none_for_lists(found)
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
    if asyncio_helper.session_manager.session is not None:
        await asyncio_helper.session_manager.session.close()


async def _process_request(
    token: str, url: str, method: str = "get", params: Any = None, files: Any = None, **how: Any
) -> Any:
    """Replaces asyncio_helper._process_request. `url` is the method of the Bot API."""
    api = served.get(token)
    if api is None:
        return await _own_request(token, url, method=method, params=params, files=files, **how)
    with bridge.network_errors_as(asyncio_helper.RequestTimeout), bridge.reserved(api, url) as caller:
        answered = await bridge.call_soon(caller, url, params_of(params, files))
    check_list(url, answered)
    if not answered.content["ok"]:
        raise asyncio_helper.ApiTelegramException(url, answered, answered.content)
    return answered.content["result"]


async def _download(token: str, file_path: str) -> bytes:
    """Replaces asyncio_helper.download_file. Raises the same errors, with other messages."""
    if token not in served:
        return bytes(await _own_download(token, file_path))
    with bridge.network_errors_as(asyncio_helper.RequestTimeout):
        status, content = await bridge.fetch_soon(served[token], file_path)
    if status != 200:
        raise asyncio_helper.ApiException(content.decode(), "Download file", None)
    return content


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
