"""aiogram: `BOT=mybot:dp` names a Dispatcher, or a tuple (dp, bot).

Guarantees that each update is processed completely on this process's event loop, that an error that no error handler
handles fails the attempt, and that states are stored with the update. Every call of the bot, with uploads, goes through
the bridge; its original session still provides its middlewares and downloads files. A Dispatcher without a Bot gets one
with BOT_TOKEN.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any

import aiogram.types
from aiogram import Bot as AiogramBot
from aiogram import Dispatcher
from aiogram.client.session.base import BaseSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramNetworkError, TelegramRetryAfter, TelegramServerError
from aiogram.fsm.state import State
from aiogram.fsm.storage.base import BaseStorage, StateType, StorageKey
from aiogram.fsm.storage.memory import MemoryStorage
from aiogram.fsm.strategy import FSMStrategy, apply_strategy
from aiogram.methods import Response, TelegramMethod
from aiogram.types import InputFile, Update
from aiogram.types.base import TelegramObject
from pydantic import ValidationError

from chatlanes.bot.adapters import bridge, collected, storage, storage_json
from chatlanes.bot.adapters.errors import (
    UnreadableUpdateError,
    check_token,
    is_interruption,
    warn_of_address,
    warn_of_proxy,
)
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.bot.coroutines import AsyncHandler, Steps
from chatlanes.settings.imports import ImportPathError
from chatlanes.telegram.client import BotApi

#: A placeholder in the format that aiogram checks; only used to test whether a bot can be imported.
_NO_TOKEN = "1:none"  # noqa: S105


#: Errors of a start that are worth retrying: Telegram is unavailable, or requires a wait.
_PASSING = (TelegramNetworkError, TelegramServerError, TelegramRetryAfter)

#: The bot of the current update.
bot_here: ContextVar[aiogram.Bot | None] = ContextVar("bot", default=None)


def bot_of(found: Any, api: BotApi, label: str) -> Bot:
    """A Bot for the dispatcher. Raises ImportPathError."""
    dispatcher, bot = _parts(found, api, label)
    storage_json.register_objects(
        "aiogram",
        aiogram.types,
        TelegramObject,
        lambda found: found.model_dump(mode="json", exclude_unset=True),
        lambda kind, content: kind.model_validate(content, context={"bot": bot_here.get()}),
    )
    bot.session = BridgedSession(api, bot.session)
    dispatcher.errors.outer_middleware(_in_own_series)
    if isinstance(dispatcher.storage, MemoryStorage):
        dispatcher.fsm.storage = UpdateStorage(dispatcher.fsm.strategy)
    known: dict[str, Any] = {"dispatcher": dispatcher, "bots": (bot,), **dispatcher.workflow_data}
    known.pop("bot", None)  # of `Dispatcher(bot=…)`: hooks and handlers get the bot of the update, as in aiogram

    async def stop() -> None:
        await dispatcher.emit_shutdown(bot=bot, **known)
        await bot.session.close()

    async def handle(ctx: Context) -> None:
        bot_here.set(bot)
        updates = [_update(update, bot) for update in ctx.updates]
        # By name, for handlers that ask for them: `album` as in aiogram's middlewares for albums. A value that the bot
        # itself gave this name has precedence.
        messages = (each.message or each.channel_post or each.business_message for each in updates)
        named = {"album": [each for each in messages if each], "updates": updates, **dispatcher.workflow_data}
        named.pop("bot", None)
        update = updates[-1] if len(updates) == 1 else _update(collected.newest(ctx.updates), bot)
        answer = await dispatcher.feed_update(bot, update, **named)
        if isinstance(answer, TelegramMethod):
            await bot(answer)

    steps = Steps(lambda: dispatcher.emit_startup(bot=bot, **known), stop, _PASSING)
    if not isinstance(own := dispatcher.fsm.storage, UpdateStorage):
        return Bot(AsyncHandler(handle, None, steps))
    # States per user require a matching ORDER_BY; otherwise the worker does not start.
    is_users = dispatcher.fsm.strategy is FSMStrategy.GLOBAL_USER
    return Bot(AsyncHandler(handle, own.read_ahead, steps), session="user" if is_users else "chat")


def _update(content: dict[str, Any], bot: AiogramBot) -> Update:
    """Raises UnreadableUpdateError, which names the invalid fields but, unlike pydantic's error, not their values."""
    try:
        return Update.model_validate(content, context={"bot": bot})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
    # Raised outside the except block, so that pydantic's error is not attached as context.
    raise UnreadableUpdateError("; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in wrong))


async def _in_own_series(handler: Any, event: Any, data: dict[str, Any]) -> Any:
    """A middleware of error handlers, which journals their calls in a series of their own."""
    if is_interruption(event.exception):
        raise event.exception
    with bridge.in_series("error/"):
        return await handler(event, data)


def _parts(found: Any, api: BotApi, label: str) -> tuple[Dispatcher, AiogramBot]:
    parts = found if isinstance(found, tuple) else (found,)
    dispatchers = [part for part in parts if isinstance(part, Dispatcher)]
    bots = [part for part in parts if isinstance(part, AiogramBot)]
    if len(dispatchers) != 1 or len(bots) > 1:
        raise ImportPathError(f"{label} must name a Dispatcher, or a tuple (dp, bot); a Bot alone has no handlers.")
    bot = bots[0] if bots else AiogramBot(api.token or _NO_TOKEN)
    if bots:
        check_token(bot.token, api, label)
    return dispatchers[0], bot


class BridgedSession(BaseSession):
    """Wraps the session that the bot was created with. Responses are parsed or raised as aiogram does."""

    def __init__(self, api: BotApi, own: BaseSession) -> None:
        # Responses are decoded already, so json_loads returns its argument.
        super().__init__(
            api=TelegramAPIServer.from_base(api.url), json_loads=lambda content: content, json_dumps=own.json_dumps
        )
        self.middleware = own.middleware
        self._bot_api = api
        self._own = own
        warn_of_address(own.api.base.partition("/bot{token}")[0], api)
        if getattr(own, "proxy", None):
            warn_of_proxy()

    async def make_request(self, bot: AiogramBot, method: TelegramMethod[Any], timeout: int | None = None) -> Any:
        """`timeout` is ignored; BotApi's timeouts apply."""
        with bridge.reserved(self._bot_api, method.__api_method__) as caller:
            params = await self._params(bot, method)
            with bridge.network_errors_as(partial(TelegramNetworkError, method)):
                answered = await bridge.call_soon(caller, method.__api_method__, params)
        _keep_type(method)
        content: Any = answered.content
        return self.check_response(bot=bot, method=method, status_code=answered.status, content=content).result

    async def _params(self, bot: AiogramBot, method: TelegramMethod[Any]) -> dict[str, Any]:
        files: dict[str, Any] = {}
        fields = method.model_dump(warnings=False).items()
        params = {name: self.prepare_value(value, bot=bot, files=files) for name, value in fields}
        uploads = {name: await _upload(name, file, bot) for name, file in files.items()}
        return {name: value for name, value in params.items() if value} | uploads

    async def stream_content(
        self,
        url: str,
        headers: dict[str, Any] | None = None,
        timeout: int = 30,
        chunk_size: int = 65536,
        raise_for_status: bool = True,
    ) -> AsyncGenerator[bytes, None]:
        async for chunk in self._own.stream_content(url, headers, timeout, chunk_size, raise_for_status):
            yield chunk

    async def close(self) -> None:
        await self._own.close()


#: Response types that are kept alive: pydantic would rebuild an unreferenced one each time, which takes 0.3 ms.
_types: dict[type, Any] = {}


def _keep_type(method: TelegramMethod[Any]) -> None:
    if type(method) not in _types:
        _types[type(method)] = Response[method.__returning__]  # type: ignore[name-defined]


async def _upload(name: str, file: InputFile, bot: AiogramBot) -> Any:
    content = b"".join([chunk async for chunk in file.read(bot)])
    return bridge.file(file.filename or name, content)


class UpdateStorage(BaseStorage):
    """Replaces MemoryStorage. Only states of the update's own chat, or with GLOBAL_USER of its user, are accessible,
    with the guarantees of storage.py. State and data of a key are read together, on another thread.
    """

    def __init__(self, strategy: FSMStrategy) -> None:
        self._strategy = strategy

    async def set_state(self, key: StorageKey, state: StateType = None) -> None:
        await self._keep(key, "state", state.state if isinstance(state, State) else state)

    async def get_state(self, key: StorageKey) -> str | None:
        found: str | None = await self._load(key, "state")
        return found

    async def set_data(self, key: StorageKey, data: Mapping[str, Any]) -> None:
        await self._keep(key, "data", dict(data) or None)

    async def get_data(self, key: StorageKey) -> dict[str, Any]:
        return dict(await self._load(key, "data") or {})

    async def close(self) -> None:
        """Nothing to close: the worker owns the connections to Redis."""

    async def _load(self, key: StorageKey, part: str) -> Any:
        return storage.load(await self._fetched(key), _name(key, part))

    async def _keep(self, key: StorageKey, part: str, value: Any) -> None:
        place = await self._fetched(key)
        storage.keep(place, _name(key, part), value)
        other = _name(key, "data" if part == "state" else "state")
        if storage.expires() and (found := storage.load(place, other)) is not None:
            storage.keep(place, other, found)

    def read_ahead(self, ctx: Context) -> None:
        """Fetch the state and data that the dispatcher will probably read."""
        user_id, chat_id = ctx.user_id, ctx.chat_id
        if user_id is None or chat_id is None:
            return
        key = StorageKey(0, *apply_strategy(self._strategy, chat_id, user_id))
        storage.read_ahead((place, _name(key, part)) for place in self._places(key) for part in ("state", "data"))

    async def _fetched(self, key: StorageKey) -> storage.Place:
        """Fetch state and data of a key; returns the first place that is safe for this update."""
        places = self._places(key)
        wanted = [(place, _name(key, part)) for place in places for part in ("state", "data")]
        await storage.fetch_soon(wanted)
        return storage.first_safe(places, places[0])

    def _places(self, key: StorageKey) -> list[storage.Place]:
        if self._strategy is FSMStrategy.GLOBAL_USER:
            return [f"user:{key.user_id}"]
        # With ORDER_BY=topic the other topics of the chat run at the same time.
        return [key.chat_id, *([f"topic:{key.chat_id}:{key.thread_id}"] if key.thread_id else [])]


def _name(key: StorageKey, part: str) -> str:
    more = (key.user_id, key.thread_id, key.business_connection_id, key.destiny)
    return ":".join(["aiogram", *("" if each is None else str(each) for each in more), part])
