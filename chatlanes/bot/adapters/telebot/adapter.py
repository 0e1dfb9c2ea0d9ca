"""pyTelegramBotAPI: `BOT=mybot:bot` names a TeleBot or an AsyncTeleBot.

Each update is handled completely, on the thread or event loop that runs it; an error that the bot's exception handler
does not handle fails the attempt; states and next steps are stored with the update in Redis. The bot's polling and
threads are not used. Ignored options are logged once, at start.
"""

from __future__ import annotations

import logging
from typing import Any

from telebot import TeleBot, apihelper
from telebot.handler_backends import FileHandlerBackend, MemoryHandlerBackend
from telebot.storage import StateMemoryStorage, StatePickleStorage
from telebot.types import Update

from chatlanes.bot.adapters.collected import newest
from chatlanes.bot.adapters.errors import check_token
from chatlanes.bot.adapters.telebot import calls
from chatlanes.bot.adapters.telebot.errors import ErrorCollector, raising_failures
from chatlanes.bot.adapters.telebot.state import States
from chatlanes.bot.adapters.telebot.steps import NextSteps
from chatlanes.bot.bot import Bot
from chatlanes.bot.context import Context
from chatlanes.telegram.client import BotApi

log = logging.getLogger(__name__)

#: Storages that are local to a process, or that processes would overwrite for each other.
_LOCAL_STATES = (StateMemoryStorage, StatePickleStorage)
_LOCAL_STEPS = (MemoryHandlerBackend, FileHandlerBackend)


def bot_of(found: Any, api: BotApi, label: str) -> Bot:
    """A Bot for the telebot. Raises BotImportError if its token differs from BOT_TOKEN."""
    check_token(found.token, api, label)
    if not api.has_token(""):  # without a token the bot is only checked
        _warn_of_ignored_options(found, api, label)
    if isinstance(found, TeleBot):
        return _of_sync(found, api)
    from chatlanes.bot.adapters.telebot import async_adapter  # imported late, because it imports aiohttp, which is slow

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
        with raising_failures():
            # One at a time, because telebot sorts a batch by kind.
            found.process_new_updates([Update.de_json(newest(ctx.updates))])

    return Bot(handle)


def _warn_of_ignored_options(found: Any, api: BotApi, label: str) -> None:
    backends = (getattr(found, name, None) for name in ("next_step_backend", "reply_backend"))
    ignored = {
        f"apihelper.API_URL (calls go to BOT_API_URL, {api.url})": not calls.goes_to(api),
        "apihelper.proxy (set HTTPS_PROXY)": apihelper.proxy is not None,
        "apihelper.session": apihelper.session is not None,
        "apihelper.CUSTOM_REQUEST_SENDER": calls.has_custom_sender(),
        "next steps loaded from a file": any(
            isinstance(each, FileHandlerBackend) and each.handlers for each in backends
        ),
    }
    if any(ignored.values()):
        options = "; ".join(option for option, is_set in ignored.items() if is_set)
        log.warning("%s: these options are ignored (docs/migrate/pytelegrambotapi.md): %s", label, options)
