"""An Application that follows the script; its conversation is a ConversationHandler with user_data."""

from __future__ import annotations

import asyncio

from telegram.ext import Application, ConversationHandler, MessageHandler, filters

from tests.bot.adapters.bots.script import GREETING, MOMENT_S, QUESTION, TOKEN, greeted, said

NAME = 1


async def ask(update, context):
    context.user_data["greeting"] = GREETING
    await update.message.reply_text(QUESTION)
    return NAME


async def greet(update, context):
    await update.message.reply_text(greeted(context.user_data.pop("greeting"), update.message.text))
    return ConversationHandler.END


async def answer(update, context):
    for text in said(update.message.text):
        await (update.message.reply_text(text) if text else asyncio.sleep(MOMENT_S))


async def ignore_error(update, context):
    """An error handler: it runs, and the update still fails."""


application = Application.builder().token(TOKEN).build()
application.add_handler(
    ConversationHandler(
        entry_points=[MessageHandler(filters.Regex("^ask$"), ask)],
        states={NAME: [MessageHandler(filters.TEXT, greet)]},
        fallbacks=[],
    )
)
application.add_handler(MessageHandler(filters.TEXT, answer, block=False))
application.add_error_handler(ignore_error)
