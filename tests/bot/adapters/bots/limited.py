"""A bot of each framework that repeats a text, and says whether it came late. With `on_limited`."""

from __future__ import annotations

from aiogram import Dispatcher
from telebot import TeleBot
from telebot.async_telebot import AsyncTeleBot
from telegram.ext import Application, MessageHandler, filters

from chatlanes import current
from chatlanes.bot import Bot
from tests.bot.adapters.bots.script import TOKEN


def answer(text: str) -> str:
    return f"{text}, late" if current().is_late else text


async def limited_async(ctx):
    await ctx.reply("slowly")


def limited(ctx):
    ctx.reply("slowly")


_dp = Dispatcher()


@_dp.message()
async def answer_with_aiogram(message):
    await message.answer(answer(message.text))


async def answer_with_ptb(update, context):
    await update.message.reply_text(answer(update.message.text))


_application = Application.builder().token(TOKEN).build()
_application.add_handler(MessageHandler(filters.TEXT, answer_with_ptb))

_telebot = TeleBot(TOKEN)


@_telebot.message_handler()
def answer_with_telebot(message):
    _telebot.send_message(message.chat.id, answer(message.text))


_async_telebot = AsyncTeleBot(TOKEN)


@_async_telebot.message_handler()
async def answer_with_async_telebot(message):
    await _async_telebot.send_message(message.chat.id, answer(message.text))


dp, application, async_telebot = (Bot(of, on_limited=limited_async) for of in (_dp, _application, _async_telebot))
telebot = Bot(_telebot, on_limited=limited)
