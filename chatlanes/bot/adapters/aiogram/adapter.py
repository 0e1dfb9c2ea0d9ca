"""aiogram: `BOT=mybot:dp` names a Dispatcher, or a tuple (dp, bot).

Promises that an update is fed to the dispatcher to its end on this process's event loop, that a returned method is
executed, that an error which none of its error handlers took is a failed attempt, and that its states are kept with the
update. A Dispatcher alone gets a Bot with our token; start-up and shutdown callbacks run once per process.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import aiogram.types
from aiogram import Bot as AiogramBot
from aiogram import Dispatcher
from aiogram.exceptions import TelegramNetworkError, TelegramRetryAfter, TelegramServerError
from aiogram.fsm.storage.memory import MemoryStorage
from aiogram.fsm.strategy import FSMStrategy
from aiogram.methods import TelegramMethod
from aiogram.types import Update
from aiogram.types.base import TelegramObject
from pydantic import ValidationError

from chatlanes.bot.adapters import bridge, storage_json
from chatlanes.bot.adapters.aiogram.calls import BridgedSession
from chatlanes.bot.adapters.aiogram.state import UpdateStorage
from chatlanes.bot.adapters.async_handler import AsyncHandler
from chatlanes.bot.adapters.errors import UnreadableUpdateError, check_token
from chatlanes.bot.adapters.startup.lifetime import Steps
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.settings.imports import BotImportError
from chatlanes.telegram.client import BotApi

#: Shaped as a token: aiogram looks at it, and it is only used to see whether a bot can be imported.
_NO_TOKEN = "1:none"  # noqa: S105


#: Of a start: Telegram is away, or has to be waited for.
_PASSING = (TelegramNetworkError, TelegramServerError, TelegramRetryAfter)


def bot_of(found: Any, api: BotApi, said: str) -> Bot:
    """A Bot around it. Raises BotImportError."""
    dispatcher, bot = _parts(found, api, said)
    keep_objects()
    bot.session = BridgedSession(api, bot.session)
    dispatcher.errors.outer_middleware(_beside)
    if isinstance(dispatcher.storage, MemoryStorage):
        dispatcher.fsm.storage = UpdateStorage(dispatcher.fsm.strategy)
    known: dict[str, Any] = {"dispatcher": dispatcher, "bots": (bot,), **dispatcher.workflow_data}

    async def stop() -> None:
        await dispatcher.emit_shutdown(bot=bot, **known)
        await bot.session.close()

    async def handle(ctx: Context) -> None:
        bot_here.set(bot)
        answer = await dispatcher.feed_update(bot, _update(ctx, bot))
        if isinstance(answer, TelegramMethod):
            await bot(answer)

    steps = Steps(lambda: dispatcher.emit_startup(bot=bot, **known), stop, _PASSING)
    storage = dispatcher.fsm.storage
    before = storage.read_ahead if isinstance(storage, UpdateStorage) else None
    return Bot(AsyncHandler(handle, before, steps), session=_whose_session(dispatcher))


def _update(ctx: Context, bot: AiogramBot) -> Update:
    """Raises UnreadableUpdateError, which tells what is missing: pydantic's own error tells what somebody wrote."""
    try:
        return Update.model_validate(ctx.update, context={"bot": bot})
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
    # Outside of the except block: it would hang on as the context.
    raise UnreadableUpdateError("; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in wrong))


def _whose_session(dispatcher: Dispatcher) -> str:
    """A worker does not start when ORDER_BY could not keep it, as with states of a user in all chats."""
    is_users = isinstance(dispatcher.storage, UpdateStorage) and dispatcher.fsm.strategy is FSMStrategy.GLOBAL_USER
    return "user" if is_users else "chat"


async def _beside(handler: Any, event: Any, data: dict[str, Any]) -> Any:
    """A middleware of error handlers."""
    with bridge.beside("error/"):
        return await handler(event, data)


def _parts(found: Any, api: BotApi, said: str) -> tuple[Dispatcher, AiogramBot]:
    parts = found if isinstance(found, tuple) else (found,)
    dispatchers = [part for part in parts if isinstance(part, Dispatcher)]
    bots = [part for part in parts if isinstance(part, AiogramBot)]
    if len(dispatchers) != 1 or len(bots) > 1:
        raise BotImportError(f"{said} must name a Dispatcher, or a tuple (dp, bot): a Bot alone has no handlers.")
    bot = bots[0] if bots else AiogramBot(api.token or _NO_TOKEN)
    if bots:
        check_token(bot.token, api, said)
    return dispatchers[0], bot


#: The bot of the update that is handled here.
bot_here: ContextVar[aiogram.Bot | None] = ContextVar("bot", default=None)


def _told(found: TelegramObject) -> list[Any]:
    return [type(found).__name__, found.model_dump(mode="json", exclude_unset=True)]


def _made(told: list[Any]) -> TelegramObject:
    kind = getattr(aiogram.types, told[0], None)
    if not (isinstance(kind, type) and issubclass(kind, TelegramObject)):
        raise LookupError(f"what is kept is an aiogram.types.{told[0]}, which this aiogram does not have")
    return kind.model_validate(told[1], context={"bot": bot_here.get()})


def keep_objects() -> None:
    """From now on."""
    storage_json.also("aiogram", TelegramObject, _told, _made)
