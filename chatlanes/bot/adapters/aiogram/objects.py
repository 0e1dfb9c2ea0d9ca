"""Telegram's own objects in a state's data: a Message that is to be edited later, say.

Promises that one which is read belongs to the bot whose update is handled, so that its shortcuts work.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import aiogram.types
from aiogram.types.base import TelegramObject

from chatlanes.bot.adapters import kept_json

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
    kept_json.also("aiogram", TelegramObject, _told, _made)
