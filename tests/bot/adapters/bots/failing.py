"""Bots whose first attempt fails after its calls, and bots that swallow every error (`swallowing_…`).

A worker imports only the framework of the bot that it asks for.
"""

from __future__ import annotations

import asyncio
import io
import os
from contextlib import suppress
from pathlib import Path

from chatlanes.bot import current
from tests.bot.adapters.bots.script import TOKEN
from tests.support import bots

NOTES = (b"one", b"two")


def __getattr__(name):
    if name not in MADE:
        raise AttributeError(name)
    return MADE[name]()


def fail_first_attempt():
    if current().attempt == 1:
        raise RuntimeError("attempt 1")


def _telebot():
    from telebot import TeleBot
    from telebot.types import InputFile, InputMediaDocument

    bot = TeleBot(TOKEN)

    @bot.message_handler()
    def album(message):
        bot.send_document(message.chat.id, InputFile(io.BytesIO(NOTES[0]), "notes.txt"), caption="a file")
        bot.send_media_group(message.chat.id, [InputMediaDocument(InputFile(io.BytesIO(each))) for each in NOTES])
        fail_first_attempt()

    return bot


def _async_telebot():
    from telebot.async_telebot import AsyncTeleBot, ExceptionHandler
    from telebot.types import InputFile, InputMediaDocument

    class HarmlessErrors(ExceptionHandler):
        async def handle(self, exception):
            return "harmless" in str(exception)

    bot = AsyncTeleBot(TOKEN, exception_handler=HarmlessErrors())

    @bot.message_handler(func=lambda message: message.text == "albums")
    async def album(message):
        await bot.send_document(message.chat.id, ("notes.txt", NOTES[0]), caption="a file")
        await bot.send_media_group(message.chat.id, [InputMediaDocument(InputFile(io.BytesIO(each))) for each in NOTES])
        fail_first_attempt()

    @bot.message_handler()
    async def answer(message):
        await bot.send_message(message.chat.id, message.text)
        raise RuntimeError(message.text)

    return bot


def _aiogram():
    from aiogram import Dispatcher
    from aiogram.types import BufferedInputFile, InputMediaDocument

    async def album(message):
        await message.answer_document(BufferedInputFile(NOTES[0], "notes.txt"), caption="a file")
        await message.answer_media_group([InputMediaDocument(media=BufferedInputFile(each, "n.txt")) for each in NOTES])
        fail_first_attempt()

    dispatcher = Dispatcher()
    dispatcher.message.register(album)
    return dispatcher


def _ptb():
    from telegram import InputMediaDocument
    from telegram.ext import Application, MessageHandler, filters

    async def album(update, context):
        await update.message.reply_document(io.BytesIO(NOTES[0]), filename="notes.txt", caption="a file")
        await update.message.reply_media_group([InputMediaDocument(each, filename="n.txt") for each in NOTES])
        fail_first_attempt()

    application = Application.builder().token(TOKEN).build()
    application.add_handler(MessageHandler(filters.TEXT, album))
    return application


async def wait_for_gate():
    """Wait until the test opens the gate."""
    bots.record("start", current())
    while not Path(os.environ[bots.GATES], "gate").exists():
        await asyncio.sleep(0.01)


def _swallowing_telebot():
    from telebot import ExceptionHandler, TeleBot

    class AllErrors(ExceptionHandler):
        def handle(self, exception):
            return True

    bot = TeleBot(TOKEN, exception_handler=AllErrors())

    @bot.message_handler()
    def answer(message):
        asyncio.run(wait_for_gate())
        bot.send_message(message.chat.id, "#1")

    return bot


def _swallowing_async_telebot():
    from telebot.async_telebot import AsyncTeleBot, ExceptionHandler

    class AllErrorsAsync(ExceptionHandler):
        async def handle(self, exception):
            return True

    bot = AsyncTeleBot(TOKEN, exception_handler=AllErrorsAsync())

    @bot.message_handler()
    async def answer(message):
        await wait_for_gate()
        await bot.send_message(message.chat.id, "#1")

    return bot


def _swallowing_aiogram():
    from aiogram import Dispatcher

    async def answer(message):
        await wait_for_gate()
        await message.answer("#1")

    async def handled(event):
        return True

    dispatcher = Dispatcher()
    dispatcher.message.register(answer)
    dispatcher.errors.register(handled)
    return dispatcher


def _swallowing_ptb():
    from telegram.ext import Application, MessageHandler, filters

    async def answer(update, context):
        await wait_for_gate()
        with suppress(Exception):
            await update.message.reply_text("#1")

    application = Application.builder().token(TOKEN).build()
    application.add_handler(MessageHandler(filters.TEXT, answer))
    return application


MADE = {
    "telebot": _telebot,
    "async_telebot": _async_telebot,
    "aiogram": _aiogram,
    "ptb": _ptb,
    "swallowing_telebot": _swallowing_telebot,
    "swallowing_async_telebot": _swallowing_async_telebot,
    "swallowing_aiogram": _swallowing_aiogram,
    "swallowing_ptb": _swallowing_ptb,
}
