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
    """Wraps the import of a bot's module. Raises ImportPathError if the module starts polling."""
    imports.point_telebot(api)
    with imports.bots_made_here(api), imports.sqlite_in_coroutines(), polling.refused(label):
        yield


def adapted(found: Any, api: BotApi, label: str) -> Bot | None:
    """A Bot for a framework's object, or for a tuple that contains one; None if its framework is not supported. Raises
    ImportPathError.
    """
    for part in _parts(found):
        if adapter := _adapter_of(part):
            bot: Bot = import_module(adapter).bot_of(found, api, label)
            return bot
    return None


def tokens_in(found: Any) -> Iterator[str]:
    """The tokens with which a framework's object was created, or the parts of a tuple or a Bot that contains one."""
    for part in _parts(found.handle if isinstance(found, Bot) else found):
        if _adapter_of(part):
            bot = part if hasattr(part, "token") else getattr(part, "bot", None)  # of an Application
            yield from filter(None, [getattr(bot, "token", None)])


def _parts(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def _adapter_of(part: Any) -> str | None:
    """The adapter module of an object; None if it is not one of a framework."""
    modules = (kind.__module__ for kind in type(part).__mro__)
    return next(filter(None, (ADAPTERS.get(each) or ADAPTERS.get(each.partition(".")[0]) for each in modules)), None)
