"""The same bot with pyTelegramBotAPI. BOT=examples.telebot_bot:bot"""

import os
from pathlib import Path

from telebot import TeleBot
from telebot.types import InlineKeyboardButton, InlineKeyboardMarkup

bot = TeleBot(os.environ.get("BOT_TOKEN", "1:none"))
BUTTON = InlineKeyboardMarkup([[InlineKeyboardButton("Press me", callback_data="pressed")]])


@bot.message_handler(commands=["start"])
def start(message):
    bot.reply_to(message, "Send me something, or /count, /button, /photo.")


@bot.message_handler(commands=["count"])
def count(message):
    bot.set_state(message.from_user.id, "counting", message.chat.id)
    with bot.retrieve_data(message.from_user.id, message.chat.id) as data:
        data["n"] = data.get("n", 0) + 1
        bot.reply_to(message, str(data["n"]))


@bot.message_handler(commands=["button"])
def button(message):
    bot.send_message(message.chat.id, "Here it is.", reply_markup=BUTTON)


@bot.callback_query_handler(lambda query: query.data == "pressed")
def pressed(query):
    bot.answer_callback_query(query.id, "Thank you.")


@bot.message_handler(commands=["photo"])
def photo(message):
    bot.send_photo(message.chat.id, Path(__file__).with_name("photo.png").open("rb"))


@bot.message_handler(content_types=["text"])
def echo(message):
    bot.reply_to(message, message.text)
