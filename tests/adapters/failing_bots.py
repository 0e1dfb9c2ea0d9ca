"""Bots whose first attempt fails behind its calls, and one that asks its exception handler first."""

from __future__ import annotations

import io
import os

import telegram
from aiogram import Dispatcher
from aiogram.types import BufferedInputFile, InputMediaDocument
from telebot import TeleBot
from telebot.async_telebot import AsyncTeleBot, ExceptionHandler
from telebot.types import InputFile
from telebot.types import InputMediaDocument as TelebotDocument
from telegram.ext import Application, MessageHandler, filters

from tasks.bot import current

TOKEN = os.environ.get("BOT_TOKEN", "1:none")
NOTES = (b"one", b"two")


class Asked(ExceptionHandler):
    async def handle(self, exception):
        return "harmless" in str(exception)


dp = Dispatcher()
sync_bot = TeleBot(TOKEN)
async_bot = AsyncTeleBot(TOKEN, exception_handler=Asked())
application = Application.builder().token(TOKEN).build()


def fail_at_first():
    if current().attempt == 1:
        raise RuntimeError("attempt 1")


@dp.message()
async def album_of_aiogram(message):
    await message.answer_document(BufferedInputFile(NOTES[0], "1.txt"))
    await message.answer_media_group([InputMediaDocument(media=BufferedInputFile(each, "n.txt")) for each in NOTES])
    fail_at_first()


@sync_bot.message_handler()
def album_of_telebot(message):
    sync_bot.send_document(message.chat.id, InputFile(io.BytesIO(NOTES[0])))
    sync_bot.send_media_group(message.chat.id, [TelebotDocument(InputFile(io.BytesIO(each))) for each in NOTES])
    fail_at_first()


async def album_of_ptb(update, context):
    await update.message.reply_document(NOTES[0], filename="1.txt")
    await update.message.reply_media_group([telegram.InputMediaDocument(each, filename="n.txt") for each in NOTES])
    fail_at_first()


@async_bot.message_handler()
async def asked(message):
    await async_bot.send_message(message.chat.id, message.text)
    raise RuntimeError(message.text)


async def count_of_ptb(update, context):
    seen = context.chat_data.setdefault("seen", {})
    seen[update.effective_user.id] = seen.get(update.effective_user.id, 0) + 1
    await update.message.reply_text(f"#{seen[update.effective_user.id]}")


application.add_handler(MessageHandler(filters.Regex("^count"), count_of_ptb))
application.add_handler(MessageHandler(filters.TEXT, album_of_ptb))
