from __future__ import annotations

from telegram.ext import Application, MessageHandler, filters

from chatlanes import current
from tests.bot.stream.bots.script import TOKEN, tokens_async, write


async def answer(update, context):
    ctx = current()
    async with ctx.stream() as out:
        async for token in tokens_async(update.message.text, ctx.attempt):
            write(out, token)


application = Application.builder().token(TOKEN).build()
application.add_handler(MessageHandler(filters.TEXT, answer))
