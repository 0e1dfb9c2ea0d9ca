"""The same bot in each framework; it answers every message. Run as a program: the framework's own polling loop.

Both sides run the same object and differ only in how they get updates. The framework's own loop handles as many updates
at a time as configured, in any order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

TOKEN, API = os.environ.get("BOT_TOKEN", "1:BENCH"), os.environ.get("BOT_API_URL", "http://127.0.0.1")

#: Environment variable: how many updates the framework's own loop handles at a time.
AT_ONCE = "BENCH_AT_ONCE"
PAUSE_MS = 50
#: A message whose text ends with this is answered after a pause.
WAITS = "wait"


def __getattr__(name: str) -> Any:
    """Imports only the framework that is asked for."""
    if name not in MADE:
        raise AttributeError(name)
    return MADE[name]()


def _telebot() -> Any:
    from telebot import TeleBot, apihelper

    apihelper.API_URL = API + "/bot{0}/{1}"
    bot = TeleBot(TOKEN, num_threads=_at_once())

    def answer(message: Any) -> None:
        if message.text.endswith(WAITS):
            time.sleep(PAUSE_MS / 1000)
        bot.send_message(message.chat.id, "pong")

    bot.register_message_handler(answer)
    return bot


def _aiogram() -> Any:
    from aiogram import Bot, Dispatcher
    from aiogram.client.session.aiohttp import AiohttpSession
    from aiogram.client.telegram import TelegramAPIServer

    async def answer(message: Any) -> None:
        if message.text.endswith(WAITS):
            await asyncio.sleep(PAUSE_MS / 1000)
        await message.answer("pong")

    dispatcher = Dispatcher()
    dispatcher.message.register(answer)
    return dispatcher, Bot(TOKEN, AiohttpSession(api=TelegramAPIServer.from_base(API)))


def _ptb() -> Any:
    from telegram.ext import Application, MessageHandler, filters

    async def answer(update: Any, context: Any) -> None:
        if update.message.text.endswith(WAITS):
            await asyncio.sleep(PAUSE_MS / 1000)
        await update.message.reply_text("pong")

    application = Application.builder().token(TOKEN).base_url(f"{API}/bot").concurrent_updates(_at_once()).build()
    application.add_handler(MessageHandler(filters.TEXT, answer))
    return application


MADE = {"telebot": _telebot, "aiogram": _aiogram, "ptb": _ptb}


def _at_once() -> int:
    return int(os.environ.get(AT_ONCE, "1"))


def main(framework: str) -> None:
    """Poll with the framework's own loop, until SIGTERM."""
    bot = MADE[framework]()
    if framework == "telebot":
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # telebot installs no handler
        bot.infinity_polling()
    elif framework == "aiogram":
        dispatcher, its_bot = bot
        asyncio.run(dispatcher.start_polling(its_bot, tasks_concurrency_limit=_at_once()))
    else:
        bot.run_polling()


if __name__ == "__main__":
    main(sys.argv[1])
