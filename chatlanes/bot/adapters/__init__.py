"""Adapters for bots of other frameworks, chosen by the type of the object that BOT names.

Guarantees that a framework is imported only for a bot that uses it. An adapter is a module with one function,
`bot_of(found, api, said)`, which returns a Bot: its handler runs one update to its end and raises what the framework's
own handlers raised. `said` names the bot in its errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from chatlanes.bot.adapters.startup import api_server, polling, sqlite
from chatlanes.bot.adapters.telebot import server_address
from chatlanes.bot.bot import Bot
from chatlanes.telegram.client import BotApi

#: The package that a type comes from -> the adapter.
ADAPTERS = {
    "telebot": "chatlanes.bot.adapters.telebot.adapter",
    "aiogram": "chatlanes.bot.adapters.aiogram.adapter",
    "telegram": "chatlanes.bot.adapters.ptb.adapter",
}


@contextmanager
def importing(api: BotApi, said: str) -> Iterator[None]:
    """Around the import of a bot's module. Raises BotImportError when it starts polling."""
    server_address.use(api)
    with api_server.used(api), sqlite.usable_in_coroutines(), polling.refused(said):
        yield


def adapted(found: Any, api: BotApi, said: str) -> Bot | None:
    """A Bot around a framework's object, or around a tuple with one; None: it is of no framework that we know.

    Raises BotImportError.
    """
    for part in found if isinstance(found, tuple) else (found,):
        for kind in type(part).__mro__:
            adapter = ADAPTERS.get(kind.__module__.partition(".")[0])
            if adapter:
                bot: Bot = import_module(adapter).bot_of(found, api, said)
                return bot
    return None
