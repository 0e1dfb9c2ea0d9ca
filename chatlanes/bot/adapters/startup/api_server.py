"""Points aiogram and python-telegram-bot bots to the configured server before they are adapted.

A bot that is created during the import of its module, or in its `main` before it polls, calls BOT_API_URL, unless it
sets another address itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import ModuleType
from typing import Any

from chatlanes.bot.adapters.errors import PUBLIC_API
from chatlanes.bot.adapters.startup.import_hook import on_import
from chatlanes.telegram.client import BotApi

_here: ContextVar[BotApi | None] = ContextVar("server of the bots that are made here", default=None)


@contextmanager
def used(api: BotApi) -> Iterator[None]:
    """Wraps code that creates a bot."""
    on_import("aiogram.client.session.base", _change_aiogram)
    on_import("telegram._bot", _change_ptb)
    token = _here.set(api)
    try:
        yield
    finally:
        _here.reset(token)


def _change_aiogram(module: ModuleType) -> None:
    def point(session: Any, api: BotApi) -> None:
        if session.api is module.PRODUCTION:
            session.api = module.TelegramAPIServer.from_base(api.url)

    _after_init(module.BaseSession, point)


def _change_ptb(module: ModuleType) -> None:
    def point(bot: Any, api: BotApi) -> None:
        for name in ("_base_url", "_base_file_url"):
            address = getattr(bot, name)
            if address.startswith(f"{PUBLIC_API}/"):
                with bot._unfrozen():
                    setattr(bot, name, api.url + address.removeprefix(PUBLIC_API))

    _after_init(module.Bot, point)


def _after_init(kind: type, point: Callable[[Any, BotApi], None]) -> None:
    own: Callable[..., None] = kind.__init__  # type: ignore[misc]

    @wraps(own)
    def init(made: Any, *arguments: Any, **named: Any) -> None:
        own(made, *arguments, **named)
        if (api := _here.get()) is not None:
            point(made, api)

    kind.__init__ = init  # type: ignore[misc]
