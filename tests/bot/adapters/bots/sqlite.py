"""Bots with coroutines that open a database when their module is imported, as many do."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from aiogram import Dispatcher
from telebot.async_telebot import AsyncTeleBot
from telegram.ext import Application, MessageHandler, filters

from tests.bot.adapters.bots.script import TOKEN
from tests.support.bots import GATES

database = sqlite3.connect(Path(os.environ[GATES], "bot.sqlite"))
cursor = database.cursor()
cursor.execute("CREATE TABLE IF NOT EXISTS said (text TEXT)")
database.commit()

dp = Dispatcher()
bot = AsyncTeleBot(TOKEN)
application = Application.builder().token(TOKEN).build()


def kept(text: str) -> str:
    cursor.execute("INSERT INTO said VALUES (?)", (text,))
    database.commit()
    return f"kept {text}"


@dp.message()
async def keep(message):
    await message.answer(kept(message.text))


@bot.message_handler(func=lambda _: True)
async def telebot_keep(message):
    await bot.send_message(message.chat.id, kept(message.text))


async def ptb_keep(update, _):
    await update.message.reply_text(kept(update.message.text))


application.add_handler(MessageHandler(filters.TEXT, ptb_keep))
