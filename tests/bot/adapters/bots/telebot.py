"""A TeleBot that follows the script; its conversation is a next step."""

from __future__ import annotations

import os
import time

from telebot import TeleBot

from tests.bot.adapters.bots.script import GREETING, MOMENT_S, QUESTION, TOKEN, greeted, said

bot = TeleBot(os.environ.get("TELEBOT_TOKEN", TOKEN))


@bot.message_handler(func=lambda message: message.text == "ask")
def ask(message):
    bot.reply_to(message, QUESTION)
    bot.register_next_step_handler(message, greet, GREETING)


def greet(message, greeting):
    bot.send_message(message.chat.id, greeted(greeting, message.text))


@bot.message_handler(func=lambda message: True)
def answer(message):
    for text in said(message.text):
        bot.send_message(message.chat.id, text) if text else time.sleep(MOMENT_S)
