"""Adapters for bots of other frameworks, chosen by the type of the object that BOT names.

A framework is imported only for a bot that uses it. An adapter is a module with a function `bot_of(found, api, label)`,
which returns a Bot whose handler processes one update completely and raises what the framework's handlers raised.
`label` (such as `BOT=mybot:bot`) names the bot in errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from chatlanes.bot.adapters import imports, polling
from chatlanes.bot.bot import Bot
from chatlanes.telegram.client import BotApi

#: The module of a type, or its top-level package -> the adapter module.
ADAPTERS = {
    "telebot.async_telebot": "chatlanes.bot.adapters.async_telebot",
    "telebot": "chatlanes.bot.adapters.telebot",
    "aiogram": "chatlanes.bot.adapters.aiogram",
    "telegram": "chatlanes.bot.adapters.ptb.adapter",
}


@contextmanager
def importing(api: BotApi, label: str) -> Iterator[None]:
    """Wraps the import of a bot's module. Raises BotImportError if the module starts polling."""
    imports.point_telebot(api)
    with imports.bots_made_here(api), imports.sqlite_in_coroutines(), polling.refused(label):
        yield


def adapted(found: Any, api: BotApi, label: str) -> Bot | None:
    """A Bot for a framework's object, or for a tuple that contains one; None if its framework is not supported. Raises
    BotImportError.
    """
    for part in found if isinstance(found, tuple) else (found,):
        for kind in type(part).__mro__:
            adapter = ADAPTERS.get(kind.__module__) or ADAPTERS.get(kind.__module__.partition(".")[0])
            if adapter:
                bot: Bot = import_module(adapter).bot_of(found, api, label)
                return bot
    return None
