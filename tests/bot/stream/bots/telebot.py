from __future__ import annotations

from telebot import TeleBot

from chatlanes import current
from tests.bot.stream.bots.script import TOKEN, tokens, write

bot = TeleBot(TOKEN)


@bot.message_handler(func=lambda message: True)
def answer(message):
    ctx = current()
    with ctx.stream() as out:
        for token in tokens(message.text, ctx.attempt):
            write(out, token)
