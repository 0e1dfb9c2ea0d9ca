"""An Application that does what the text of a message says, and answers its `#<n>`."""

from __future__ import annotations

import io
import os
import re
import signal

from telegram.ext import Application, ConversationHandler, MessageHandler, filters

from tasks.bot import current
from tests.pipeline import bots as plain

NAME = 1


async def ask(update, context):
    context.user_data["greeting"] = "Hello"
    await update.message.reply_text("Your name?")
    return NAME


async def greet(update, context):
    greeting = context.user_data.pop("greeting")
    await update.message.reply_text(f"{greeting} {update.message.text} from {os.environ[plain.WORKER]}")
    return ConversationHandler.END


async def three(update, context):
    for n in (1, 2, 3):
        await update.message.reply_text(f"part {n}")
        if n == 2 and current().attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


async def upload(update, context):
    await update.message.reply_document(io.BytesIO(b"what was uploaded"), filename="notes.txt", caption="a file")


async def answer(update, context):
    ctx = current()
    plain.record("start", ctx)
    context.chat_data["seen"] = context.chat_data.get("seen", 0) + 1
    if update.message.text.startswith("fails"):
        raise RuntimeError(f"attempt {ctx.attempt}")
    await update.message.reply_text(re.findall(r"#\d+", update.message.text)[0])
    plain.record("end", ctx)


async def excuse(update, context):
    """An error handler: it runs, and the update fails all the same."""


application = Application.builder().token(os.environ.get("BOT_TOKEN", "1:none")).build()
application.add_handler(
    ConversationHandler(
        entry_points=[MessageHandler(filters.Regex("^ask"), ask)],
        states={NAME: [MessageHandler(filters.TEXT, greet)]},
        fallbacks=[],
    )
)
for words, handler in (("^three", three), ("^upload", upload)):
    application.add_handler(MessageHandler(filters.Regex(words), handler))
application.add_handler(MessageHandler(filters.TEXT, answer, block=False))
application.add_error_handler(excuse)
