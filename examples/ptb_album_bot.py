"""The same with python-telegram-bot. COLLECT=messages BOT=examples.ptb_album_bot:application"""

import os

from telegram.ext import Application, MessageHandler, filters


async def answer(update, context):
    messages = [each.effective_message for each in context.updates]
    texts = [text for each in messages if (text := each.text or each.caption)]
    if photos := [each.photo[-1] for each in messages if each.photo]:
        await update.effective_message.reply_text(f"{len(photos)} photos: {' '.join(texts)}")
    elif texts:
        await update.effective_message.reply_text(f"{len(messages)} messages: {' / '.join(texts)}")


application = Application.builder().token(os.environ.get("BOT_TOKEN", "1:none")).build()
application.add_handler(MessageHandler(filters.ALL, answer))
