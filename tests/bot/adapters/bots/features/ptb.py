"""An Application with more than handlers: states of any type, nested conversations, custom data classes, tasks,
downloads, stored objects; and an application that cannot start.
"""

from __future__ import annotations

import asyncio
import enum
import os
from collections import defaultdict
from pathlib import Path

from telegram import InlineKeyboardButton, InlineKeyboardMarkup
from telegram.ext import (
    Application,
    CallbackQueryHandler,
    ContextTypes,
    ConversationHandler,
    MessageHandler,
    filters,
)

from chatlanes.bot import current
from tests.bot.adapters.bots.script import TOKEN, greeted
from tests.support import bots


class Step(enum.Enum):
    NAME = enum.auto()
    INSIDE = enum.auto()


class Remembered:
    """Used as chat_data instead of a dict."""

    def __init__(self) -> None:
        self.count = defaultdict(int)
        self.message = None


def handler(text, function):
    return MessageHandler(filters.Regex(f"^{text}$"), function)


def says(text, state):
    async def say(update, context):
        context.chat_data.count[update.effective_user.id] += 1
        await update.message.reply_text(greeted(f"{text} {context.chat_data.count[update.effective_user.id]}", ""))
        return state

    return say


async def send(update, context):
    context.chat_data.message = await update.message.reply_text("kept")


async def edit(update, context):
    await context.chat_data.message.edit_text("edited")


async def button(update, context):
    """The first attempt fails after sending a message whose button has more than a text as data."""
    press = InlineKeyboardButton("Press me", callback_data={"pressed": (1, Step.NAME)})
    await update.message.reply_text("a button", reply_markup=InlineKeyboardMarkup.from_button(press))
    if current().attempt == 1:
        raise RuntimeError("at first")


async def pressed(update, context):
    await update.callback_query.answer(str(update.callback_query.data))


async def clear(update, context):
    context.bot.callback_data_cache.clear_callback_data()
    press = InlineKeyboardButton("Press me", callback_data="after")
    await update.message.reply_text("cleared", reply_markup=InlineKeyboardMarkup.from_button(press))


async def task(update, context):
    async def work():
        await asyncio.sleep(0.01)
        await update.message.reply_text("the task")
        if current().attempt == 1:
            raise RuntimeError("in a task")

    context.application.create_task(work(), update)
    await update.message.reply_text("the handler")


async def download(update, context):
    file = await context.bot.get_file("F1")
    await update.message.reply_text((await file.download_as_bytearray()).decode())


async def freeze(update, context):
    """The test freezes this worker, and thaws it after another worker has run the update."""
    await update.message.reply_text("before")
    if current().attempt == 1:
        Path(os.environ[bots.GATES], "begun").touch()
        while not Path(os.environ[bots.GATES], "thawed").exists():
            await asyncio.sleep(0.005)
    context.chat_data.count["attempt"] = current().attempt
    try:
        await update.message.reply_text(f"attempt {current().attempt}")
    except Exception as error:
        Path(os.environ[bots.GATES], "raised").write_text(type(error).__name__)
        raise


async def apologize(update, context):
    """An error handler whose call does not belong to the handler."""
    await update.message.reply_text("sorry")


inner = ConversationHandler(
    [handler("in", says("inside", ("deep", 1)))],
    {("deep", 1): [handler("out", says("leaving", ConversationHandler.END))]},
    [],
    map_to_parent={ConversationHandler.END: Step.NAME},
)


async def poll(application):
    await application.updater.start_polling()


async def fail(application):
    raise RuntimeError("no database")


application = (
    Application.builder()
    .token(TOKEN)
    .context_types(ContextTypes(chat_data=Remembered))
    .arbitrary_callback_data(True)
    .post_init(poll)
    .build()
)
broken = Application.builder().token(TOKEN).post_init(fail).build()
application.add_handler(
    ConversationHandler(
        [handler("start", says("started", Step.INSIDE))],
        {Step.INSIDE: [inner], Step.NAME: [handler("end", says("ended", ConversationHandler.END))]},
        [],
    )
)
application.add_handlers(
    [handler(each.__name__, each) for each in (send, edit, button, clear, task, download, freeze)],
)
application.add_handler(CallbackQueryHandler(pressed))
application.add_error_handler(apologize)
