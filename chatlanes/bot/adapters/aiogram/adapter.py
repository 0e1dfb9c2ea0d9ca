"""aiogram: `BOT=mybot:dp` names a Dispatcher, or a tuple (dp, bot).

The dispatcher processes each update completely on this process's event loop; a returned method is executed, an error
that no error handler handles fails the attempt, and states are stored with the update. A Dispatcher without a Bot gets
one with BOT_TOKEN. Start-up and shutdown callbacks run once per process. With COLLECT it gets the newest update, with
the texts of all, and handlers get all of them by name, as `updates` and `album`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

import aiogram.types
from aiogram import Bot as AiogramBot
from aiogram import Dispatcher
from aiogram.exceptions import TelegramNetworkError, TelegramRetryAfter, TelegramServerError
from aiogram.fsm.storage.memory import MemoryStorage
from aiogram.fsm.strategy import FSMStrategy
from aiogram.methods import TelegramMethod
from aiogram.types import Message, Update
from aiogram.types.base import TelegramObject
from pydantic import ValidationError

from chatlanes.bot.adapters import bridge, collected, storage_json
from chatlanes.bot.adapters.aiogram.calls import BridgedSession
from chatlanes.bot.adapters.aiogram.state import UpdateStorage
from chatlanes.bot.adapters.errors import UnreadableUpdateError, check_token, is_interruption
from chatlanes.bot.adapters.startup.async_handler import AsyncHandler
from chatlanes.bot.adapters.startup.lifetime import Steps
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.settings.imports import BotImportError
from chatlanes.telegram.client import BotApi

#: A placeholder in the format that aiogram checks; only used to test whether a bot can be imported.
_NO_TOKEN = "1:none"  # noqa: S105


#: Errors of a start that are worth retrying: Telegram is unavailable, or requires a wait.
_PASSING = (TelegramNetworkError, TelegramServerError, TelegramRetryAfter)


def bot_of(found: Any, api: BotApi, label: str) -> Bot:
    """A Bot for the dispatcher. Raises BotImportError."""
    dispatcher, bot = _parts(found, api, label)
    register_objects()
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
        # By name, for handlers that ask for them; a value that the bot itself gave this name has precedence.
        named = {"album": list(_messages(updates)), "updates": updates, **dispatcher.workflow_data}
        named.pop("bot", None)
        update = updates[-1] if len(updates) == 1 else _update(collected.newest(ctx.updates), bot)
        answer = await dispatcher.feed_update(bot, update, **named)
        if isinstance(answer, TelegramMethod):
            await bot(answer)

    steps = Steps(lambda: dispatcher.emit_startup(bot=bot, **known), stop, _PASSING)
    storage = dispatcher.fsm.storage
    before = storage.read_ahead if isinstance(storage, UpdateStorage) else None
    return Bot(AsyncHandler(handle, before, steps), session=_session_of(dispatcher))


def _messages(updates: Iterable[Update]) -> Iterator[Message]:
    """The new messages and posts, as aiogram's middlewares for albums collect them."""
    for update in updates:
        message = update.message or update.channel_post or update.business_message
        if message is not None:
            yield message


def _update(content: dict[str, Any], bot: AiogramBot) -> Update:
    """Raises UnreadableUpdateError, which names the invalid fields but, unlike pydantic's error, not their values."""
    try:
        return Update.model_validate(content, context={"bot": bot})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
    # Raised outside the except block, so that pydantic's error is not attached as context.
    raise UnreadableUpdateError("; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in wrong))


def _session_of(dispatcher: Dispatcher) -> str:
    """The Bot's `session`. States per user require a matching ORDER_BY; otherwise the worker does not start."""
    is_users = isinstance(dispatcher.storage, UpdateStorage) and dispatcher.fsm.strategy is FSMStrategy.GLOBAL_USER
    return "user" if is_users else "chat"


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
        raise BotImportError(f"{label} must name a Dispatcher, or a tuple (dp, bot); a Bot alone has no handlers.")
    bot = bots[0] if bots else AiogramBot(api.token or _NO_TOKEN)
    if bots:
        check_token(bot.token, api, label)
    return dispatchers[0], bot


#: The bot of the current update.
bot_here: ContextVar[aiogram.Bot | None] = ContextVar("bot", default=None)


def _encode(found: TelegramObject) -> list[Any]:
    return [type(found).__name__, found.model_dump(mode="json", exclude_unset=True)]


def _decode(encoded: list[Any]) -> TelegramObject:
    kind = getattr(aiogram.types, encoded[0], None)
    if not (isinstance(kind, type) and issubclass(kind, TelegramObject)):
        raise LookupError(f"the stored value is an aiogram.types.{encoded[0]}, which this version of aiogram lacks")
    return kind.model_validate(encoded[1], context={"bot": bot_here.get()})


def register_objects() -> None:
    """Allow aiogram's types in stored data."""
    storage_json.register("aiogram", TelegramObject, _encode, _decode)
