"""The bot of talking_bot.py, with each framework. Their error handlers leave a file, because none may be called."""

from __future__ import annotations

import os
from pathlib import Path

from aiogram import Dispatcher
from telebot import ExceptionHandler, TeleBot
from telebot.async_telebot import AsyncTeleBot
from telegram.ext import Application, MessageHandler, filters

from chatlanes import current
from tests.bot.adapters.bots.script import TOKEN
from tests.support.bots import GATES
from tests.support.talking_bot import pass_gate, pass_gate_async

dp = Dispatcher()


def note_error(*_: object) -> None:
    Path(os.environ[GATES], "error").touch()


async def note_error_async(*_: object) -> None:
    note_error()


@dp.message()
async def answer_with_aiogram(message, album, bot):
    for call in current().previous_calls:
        if call.method == "sendMessage":
            await bot.delete_message(message.chat.id, call.result["message_id"])
    await message.answer("one moment")
    await pass_gate_async("a" if len(album) == 1 else "b")
    await message.answer(" ".join(each.text for each in album))


dp.errors.register(note_error_async)


async def answer_with_ptb(update, context):
    for call in current().previous_calls:
        if call.method == "sendMessage":
            await update.message.chat.delete_message(call.result["message_id"])
    await update.message.reply_text("one moment")
    await pass_gate_async("a" if len(context.updates) == 1 else "b")
    await update.message.reply_text(" ".join(each.message.text for each in context.updates))


application = Application.builder().token(TOKEN).build()
application.add_handler(MessageHandler(filters.TEXT, answer_with_ptb))
application.add_error_handler(note_error_async)


class NotingHandler(ExceptionHandler):
    def handle(self, exception):
        note_error()
        return True


telebot = TeleBot(TOKEN, exception_handler=NotingHandler())


@telebot.message_handler()
def answer_with_telebot(message):
    ctx = current()
    for call in ctx.previous_calls:
        if call.method == "sendMessage":
            telebot.delete_message(message.chat.id, call.result["message_id"])
    telebot.send_message(message.chat.id, "one moment")
    pass_gate("a" if len(ctx.updates) == 1 else "b")
    telebot.send_message(message.chat.id, " ".join(ctx.texts))


async_telebot = AsyncTeleBot(TOKEN, exception_handler=NotingHandler())


@async_telebot.message_handler()
async def answer_with_async_telebot(message):
    ctx = current()
    for call in ctx.previous_calls:
        if call.method == "sendMessage":
            await async_telebot.delete_message(message.chat.id, call.result["message_id"])
    await async_telebot.send_message(message.chat.id, "one moment")
    await pass_gate_async("a" if len(ctx.updates) == 1 else "b")
    await async_telebot.send_message(message.chat.id, " ".join(ctx.texts))
