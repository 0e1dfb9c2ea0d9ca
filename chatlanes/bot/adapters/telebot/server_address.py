"""Points telebot to BOT_API_URL for calls that a bot makes while its module is imported.

An address that the bot sets itself is kept. telebot stores the address in its modules, for all bots.
"""

from __future__ import annotations

import sys
from types import ModuleType

from chatlanes.bot.adapters.startup.import_hook import on_import
from chatlanes.telegram.client import BotApi

MODULES = ("telebot.apihelper", "telebot.asyncio_helper")
#: Addresses that no bot has set: telebot's default, and those set here.
_unset: set[str | None] = {None, "https://api.telegram.org/bot{0}/{1}"}
_current: list[BotApi] = []


def use(api: BotApi) -> None:
    """Set the server for the bot whose module is imported next."""
    _current[:] = [api]
    for name in MODULES:
        on_import(name, _point)
        if name in sys.modules:
            _point(sys.modules[name])


def is_unset(address: str | None) -> bool:
    """True if no bot has set this address."""
    return address in _unset


def _point(module: ModuleType) -> None:
    for name, path in (("API_URL", "/bot{0}/{1}"), ("FILE_URL", "/file/bot{0}/{1}")):
        if is_unset(getattr(module, name)):
            setattr(module, name, _current[0].url + path)
            _unset.add(_current[0].url + path)
