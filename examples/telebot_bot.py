"""The same bot with pyTelegramBotAPI. BOT=examples.telebot_bot:bot"""

import os
from pathlib import Path

from telebot import TeleBot, types, util

from chatlanes import current

bot = TeleBot(os.environ.get("BOT_TOKEN", "1:none"))


@bot.message_handler(commands=["start"])
def start(message):
    bot.reply_to(message, "Send me something, or /count, /button, /photo.")


@bot.message_handler(commands=["count"])
def count(message):
    n = current().session["n"] = current().session.get("n", 0) + 1
    bot.reply_to(message, str(n))


@bot.message_handler(commands=["button"])
def button(message):
    bot.reply_to(message, "Here it is.", reply_markup=util.quick_markup({"Press me": {"callback_data": "pressed"}}))


@bot.message_handler(commands=["photo"])
def photo(message):
    bot.send_photo(message.chat.id, types.InputFile(Path(__file__).with_name("photo.png")))


@bot.message_handler(content_types=["text"])
def echo(message):
    bot.reply_to(message, message.text)


bot.register_callback_query_handler(lambda query: bot.answer_callback_query(query.id, "Thank you."), lambda query: True)
