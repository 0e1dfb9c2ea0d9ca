"""pyTelegramBotAPI: `BOT=mybot:bot` names a TeleBot or an AsyncTeleBot.

Promises that one update is handled at a time, to its end, on the thread or the loop that runs it; that an error which
its exception handler does not call handled is a failed attempt; and that states and next steps are kept with the update
in Redis. Its polling and its own threads are not used. What it sets and we do not heed is told once, at start.
"""

from __future__ import annotations

import logging
from typing import Any

from telebot import TeleBot, apihelper
from telebot.handler_backends import FileHandlerBackend, MemoryHandlerBackend
from telebot.storage import StateMemoryStorage, StatePickleStorage
from telebot.types import Update

from chatlanes.bot.adapters.errors import check_token
from chatlanes.bot.adapters.telebot import calls
from chatlanes.bot.adapters.telebot.errors import ErrorCollector, raised_again
from chatlanes.bot.adapters.telebot.state import States
from chatlanes.bot.adapters.telebot.steps import NextSteps
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.telegram.client import BotApi

log = logging.getLogger(__name__)

#: What each process would keep for itself, or write over another's.
_LOCAL_STATES = (StateMemoryStorage, StatePickleStorage)
_LOCAL_STEPS = (MemoryHandlerBackend, FileHandlerBackend)


def bot_of(found: Any, api: BotApi, said: str) -> Bot:
    """A Bot around it. Raises BotImportError for one that has another token."""
    check_token(found.token, api, said)
    if not api.has_token(""):  # else it is only looked at
        _warn_of_ignored_options(found, api, said)
    if isinstance(found, TeleBot):
        return _of_sync(found, api)
    from chatlanes.bot.adapters.telebot import async_adapter  # aiohttp, which it imports, takes its time

    return async_adapter.bot_of(found, api)


def _of_sync(found: TeleBot, api: BotApi) -> Bot:
    calls.take_over(found.token, api)
    found.exception_handler = ErrorCollector(found.exception_handler)
    if found.threaded:
        found.threaded = False
        found.worker_pool.close()
    if isinstance(found.current_states, _LOCAL_STATES):
        found.current_states = States()
    if isinstance(found.next_step_backend, _LOCAL_STEPS):
        found.next_step_backend = NextSteps("next")
    if isinstance(found.reply_backend, _LOCAL_STEPS):
        found.reply_backend = NextSteps("reply")

    def handle(ctx: Context) -> None:
        with raised_again():
            # One at a time: it would sort a batch by kind.
            found.process_new_updates([Update.de_json(ctx.update)])

    return Bot(handle)


def _warn_of_ignored_options(found: Any, api: BotApi, said: str) -> None:
    backends = (getattr(found, name, None) for name in ("next_step_backend", "reply_backend"))
    unheeded = {
        f"apihelper.API_URL, for calls go to {api.url} (BOT_API_URL)": not calls.goes_to(api),
        "apihelper.proxy (set HTTPS_PROXY)": apihelper.proxy is not None,
        "apihelper.session": apihelper.session is not None,
        "apihelper.CUSTOM_REQUEST_SENDER": calls.has_sender_of_its_own(),
        "next steps loaded from a file": any(
            isinstance(each, FileHandlerBackend) and each.handlers for each in backends
        ),
    }
    if any(unheeded.values()):
        told = "; ".join(what for what, is_so in unheeded.items() if is_so)
        log.warning("%s: not heeded here (docs/migrate/pytelegrambotapi.md): %s", said, told)
