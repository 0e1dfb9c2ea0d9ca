"""One bot per framework whose handlers start tasks and do not await them. The first word of a message says when the
task makes its call: at `once`, after `zero` (sleep(0)), `after` a call of the handler, `twice` in a row, or `later`.
The handler of `fails` raises after starting its task. In its first run, the handler of `frozen` waits until `thawed`
exists, and its task calls later.

A worker imports only the framework of the bot that it asks for.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from celery_lanes import LeaseLost
from chatlanes.bot import current
from tests.bot.adapters.bots.script import TOKEN, note
from tests.support.bots import GATES

Send = Callable[[str], Awaitable[Any]]

#: asyncio itself holds tasks by weak references.
tasks: set[asyncio.Task[None]] = set()


def __getattr__(name):
    if name not in MADE:
        raise AttributeError(name)
    return MADE[name]()


async def leave(text: str, send: Send) -> None:
    when = text.split()[0]
    if when == "after":
        await send(f"{text} handler")
    if when == "frozen":
        if current().attempt > 1:
            return
        note("begun")
        while not is_open("thawed"):
            time.sleep(0.01)
    task = asyncio.create_task(call(when, text, send))
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    if when == "fails":
        raise RuntimeError("after the task")


def is_open(gate: str) -> bool:
    return Path(os.environ[GATES], gate).exists()


async def call(when: str, text: str, send: Send) -> None:
    if when == "zero":
        await asyncio.sleep(0)
    while when in ("later", "frozen") and not is_open("gate"):
        await asyncio.sleep(0.01)
    try:
        await send(f"{text} task")
    except LeaseLost:
        note("refused")
        raise
    if when == "twice":
        await send(f"{text} second")


def _aiogram():
    from aiogram import Dispatcher

    dispatcher = Dispatcher()

    @dispatcher.message()
    async def handle(message):
        await leave(message.text, message.answer)

    return dispatcher


def _async_telebot():
    from telebot.async_telebot import AsyncTeleBot

    bot = AsyncTeleBot(TOKEN)

    @bot.message_handler(func=lambda _: True)
    async def handle(message):
        await leave(message.text, lambda text: bot.send_message(message.chat.id, text))

    return bot


def _ptb():
    from telegram.ext import Application, MessageHandler, filters

    async def handle(update, _):
        await leave(update.message.text, update.message.reply_text)

    application = Application.builder().token(TOKEN).build()
    application.add_handler(MessageHandler(filters.TEXT, handle))
    return application


async def plain(ctx):
    async def send(text):
        await ctx.reply(text)

    await leave(ctx.text, send)


MADE = {"aiogram": _aiogram, "async_telebot": _async_telebot, "ptb": _ptb}
