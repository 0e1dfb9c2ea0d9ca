"""Telegram's own objects in chat_data and user_data: a Message that is to be edited later, say.

Promises that one which is read belongs to the bot whose update is handled, so that its shortcuts work.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import telegram

from chatlanes.bot.adapters import kept_json

#: The bot of the update that is handled here.
bot_here: ContextVar[telegram.Bot | None] = ContextVar("bot", default=None)


def _told(found: telegram.TelegramObject) -> list[Any]:
    return [type(found).__name__, found.to_dict()]


def _made(told: list[Any]) -> telegram.TelegramObject:
    kind = getattr(telegram, told[0], None)
    if not (isinstance(kind, type) and issubclass(kind, telegram.TelegramObject)):
        raise LookupError(f"what is kept is a telegram.{told[0]}, which this python-telegram-bot does not have")
    return kind.de_json(told[1], bot_here.get())


def keep_objects() -> None:
    """From now on."""
    kept_json.also("telegram", telegram.TelegramObject, _told, _made)
