"""An Application whose conversations end by themselves. As a script it runs without chatlanes, on one process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

from telegram import Update
from telegram.ext import (
    Application,
    CallbackQueryHandler,
    ConversationHandler,
    Job,
    MessageHandler,
    TypeHandler,
    filters,
)

from tests.bot.adapters.bots.jobs import NOTICES
from tests.bot.adapters.bots.script import TOKEN
from tests.support import bots

#: Longer than it takes to handle the updates of a chat that arrive together.
SHORT_S, LONG_S = 1.0, 2.0
END, TIMEOUT = ConversationHandler.END, ConversationHandler.TIMEOUT


def says(text, state=None):
    """Sends a text with what the context knows, and goes to a state."""

    async def run(update, context):
        count = context.user_data["count"] = context.user_data.get("count", 0) + 1
        asked = update.callback_query.data if update.callback_query else update.effective_message.text
        who = update.effective_user.id
        await context.bot.send_message(update.effective_chat.id, f"{text}: {asked} {who} {count} {context.job}")
        return state

    return run


def word(text, callback):
    return MessageHandler(filters.Regex(f"^{text}"), callback)


async def wait(update, context):
    """Waits until the test opens the gate."""
    while not Path(os.environ[bots.GATES], "gate").exists():
        await asyncio.sleep(0.01)


async def holds(update, context):
    await context.bot.send_message(update.effective_chat.id, "holding")
    await wait(update, context)
    await context.bot.send_message(update.effective_chat.id, "held")


async def fails(update, context):
    raise RuntimeError("a TIMEOUT handler failed")


async def on_error(update, context):
    await context.bot.send_message(NOTICES, f"{update} {context.job.name} {context.error}")


def conversation(entry, states, timeout_s, *timeouts, **more):
    return ConversationHandler(
        [word(entry, says(entry, 1))], {**states, TIMEOUT: list(timeouts)}, [], conversation_timeout=timeout_s, **more
    )


inner = conversation(
    "inner",
    {1: [word("inside", says("inside")), word("mapped", says("mapped", 7)), word("leave", says("leave", END))]},
    SHORT_S,
    word("in", says("inner is over")),
    map_to_parent={7: 1, END: 1},
)
CONVERSATIONS = [
    conversation(
        "talk",
        {1: [word("again", says("again")), word("end", says("end", END))]},
        SHORT_S,
        word("(talk|again)", says("over")),
        word("again", says("over again")),
        TypeHandler(Update, says("over too")),
    ),
    conversation("outer", {1: [inner]}, LONG_S, TypeHandler(Update, says("outer is over"))),
    ConversationHandler(
        [CallbackQueryHandler(says("button", 1), "pressed")],
        {1: [CallbackQueryHandler(says("more", 1))], TIMEOUT: [CallbackQueryHandler(says("unpressed"))]},
        [],
        per_message=True,
        conversation_timeout=SHORT_S,
    ),
    conversation("silent", {1: [word("go", says("go"))]}, SHORT_S),
    conversation("roam", {1: [word("go", says("go"))]}, SHORT_S, word("go", says("roamed")), per_chat=False),
    conversation("hold", {1: []}, SHORT_S, TypeHandler(Update, holds)),
    conversation("fail", {1: [word("go", says("go"))]}, SHORT_S, TypeHandler(Update, fails)),
]


def build(builder):
    application = builder.token(TOKEN).build()
    application.add_handlers([*CONVERSATIONS, word("free", says("free")), word("wait", wait)])
    application.add_error_handler(on_error)
    return application


def main():
    build(Application.builder()).run_polling()


class PlainJob(Job):
    """A job without APScheduler."""

    id = "plain"

    def __init__(self, callback, data):
        self.callback, self.data, self.name = callback, data, callback.__name__
        self.chat_id = self.user_id = None


class PlainQueue:
    """Runs jobs in this process, as python-telegram-bot's queue does."""

    scheduler = SimpleNamespace(running=True)

    def set_application(self, application):
        self.application = application

    async def start(self):
        pass

    async def stop(self, wait=True):
        pass

    def run_once(self, callback, when, data):
        job = PlainJob(callback, data)

        async def run():
            await asyncio.sleep(when)
            await job._run(self.application)

        task = asyncio.ensure_future(run())
        job.schedule_removal = task.cancel
        return job


if __name__ == "__main__":
    server = os.environ["BOT_API_URL"]
    build(Application.builder().base_url(f"{server}/bot").job_queue(PlainQueue())).run_polling()
