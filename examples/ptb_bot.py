"""The same bot with python-telegram-bot. BOT=examples.ptb_bot:application"""

import os
from pathlib import Path

from telegram import InlineKeyboardButton, InlineKeyboardMarkup
from telegram.ext import Application, CallbackQueryHandler, CommandHandler, MessageHandler, filters


async def start(update, context):
    await update.message.reply_text("Send me something, or /count, /button, /photo.")


async def count(update, context):
    context.chat_data["n"] = context.chat_data.get("n", 0) + 1
    await update.message.reply_text(str(context.chat_data["n"]))


async def button(update, context):
    press = InlineKeyboardButton("Press me", callback_data="pressed")
    await update.message.reply_text("Here it is.", reply_markup=InlineKeyboardMarkup.from_button(press))


async def pressed(update, context):
    await update.callback_query.answer("Thank you.")


async def photo(update, context):
    await update.message.reply_photo(Path(__file__).with_name("photo.png"))


async def echo(update, context):
    await update.message.reply_text(update.message.text)


application = Application.builder().token(os.environ.get("BOT_TOKEN", "1:none")).build()
for handler in (start, count, button, photo):
    application.add_handler(CommandHandler(handler.__name__, handler))
application.add_handlers([CallbackQueryHandler(pressed, "pressed"), MessageHandler(filters.TEXT, echo)])
