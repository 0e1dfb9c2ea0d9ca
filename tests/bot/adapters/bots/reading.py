"""Bots that answer with the text or caption of the message that they get, in HTML, and know nothing of COLLECT."""

from __future__ import annotations

from aiogram import Dispatcher
from telebot import TeleBot, util
from telebot.async_telebot import AsyncTeleBot
from telegram.ext import Application, MessageHandler, filters

from tests.bot.adapters.bots.script import TOKEN

dp = Dispatcher()
bot = TeleBot(TOKEN)
async_bot = AsyncTeleBot(TOKEN)
application = Application.builder().token(TOKEN).build()


@dp.message()
async def read(message):
    await message.answer(message.html_text)


@bot.message_handler(content_types=util.content_type_media)
def read_with_telebot(message):
    bot.send_message(message.chat.id, message.html_text or message.html_caption)


@async_bot.message_handler(content_types=util.content_type_media)
async def read_with_async_telebot(message):
    await async_bot.send_message(message.chat.id, message.html_text or message.html_caption)


async def read_with_ptb(update, context):
    await update.effective_message.reply_text(update.message.text_html or update.message.caption_html)


application.add_handler(MessageHandler(filters.ALL, read_with_ptb))
