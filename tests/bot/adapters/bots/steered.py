"""A bot of each framework that answers to what arrives until gate a is open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aiogram import Dispatcher
from telebot import TeleBot
from telebot.async_telebot import AsyncTeleBot
from telegram.ext import Application, MessageHandler, filters

from chatlanes import current
from tests.bot.adapters.bots.script import TOKEN
from tests.support.talking_bot import is_open


async def take(send: Callable[[str], Awaitable[object]]) -> None:
    await send("one moment")
    while not is_open("a"):
        if current().arrived:
            async for update in current().arrivals():
                await send(f"took {update['message']['text']}")
        await asyncio.sleep(0.005)


dp = Dispatcher()


@dp.message()
async def answer_with_aiogram(message):
    await take(message.answer)


async def answer_with_ptb(update, context):
    await take(update.message.reply_text)


application = Application.builder().token(TOKEN).build()
application.add_handler(MessageHandler(filters.TEXT, answer_with_ptb))

telebot = TeleBot(TOKEN)


@telebot.message_handler()
def answer_with_telebot(message):
    telebot.send_message(message.chat.id, "one moment")
    while not is_open("a"):
        for update in current().arrivals():
            telebot.send_message(message.chat.id, f"took {update['message']['text']}")
        time.sleep(0.005)


async_telebot = AsyncTeleBot(TOKEN)


@async_telebot.message_handler()
async def answer_with_async_telebot(message):
    await take(lambda text: async_telebot.send_message(message.chat.id, text))
