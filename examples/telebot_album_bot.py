"""The same with pyTelegramBotAPI. COLLECT=messages BOT=examples.telebot_album_bot:bot"""

import os

from telebot import TeleBot, util

from chatlanes import current

bot = TeleBot(os.environ.get("BOT_TOKEN", "1:none"))


@bot.message_handler(content_types=util.content_type_media)
def answer(message):
    ctx = current()
    if ctx.photos:
        bot.send_message(message.chat.id, f"{len(ctx.photos)} photos: {ctx.text}")
    elif ctx.text:
        bot.send_message(message.chat.id, f"{len(ctx.updates)} messages: {' / '.join(ctx.texts)}")
