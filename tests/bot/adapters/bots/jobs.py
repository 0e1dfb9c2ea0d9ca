"""An Application whose handlers, and whose start, set jobs of every kind."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime, time
from functools import partial
from pathlib import Path

from telegram.ext import Application, MessageHandler, filters

from chatlanes.bot import current
from tests.bot.adapters.bots.script import TOKEN
from tests.support import bots

#: The chat to which jobs without a chat send their messages.
NOTICES = 900


async def beep(context):
    job = context.job
    context.chat_data["beeps"] = context.chat_data.get("beeps", 0) + 1
    text = f"{job.name} {job.data} {context.chat_data['beeps']} {sorted(context.user_data or ())} {job.user_id}"
    await context.bot.send_message(job.chat_id, text)


async def countdown(context):
    """Runs until its data is 0."""
    job = context.job
    job.data["left"] -= 1
    await context.bot.send_message(job.chat_id, f"{job.data['left']} left")
    if not job.data["left"]:
        job.schedule_removal()


async def fail_odd(context):
    """Every second occurrence fails in all of its attempts."""
    due_ms = int(current().stored.message_id.split(":")[2])
    if due_ms // 400 % 2:
        raise RuntimeError(f"due at {due_ms}")
    await context.bot.send_message(context.job.chat_id, "works")


async def tick(context):
    await context.bot.send_message(context.job.chat_id, f"tick {current().stored.message_id.split(':')[2]}")


async def notice(context):
    await context.bot.send_message(NOTICES, f"notice {context.job.data}")


async def error(update, context):
    if context.job:
        await context.bot.send_message(context.job.chat_id, f"error in {context.job.name}: {context.error}")


def handler(function):
    return MessageHandler(filters.Regex(f"^{function.__name__}$"), function)


async def once(update, context):
    """The first attempt fails after the job is set."""
    context.chat_data["beeps"] = 10
    context.user_data["seen"] = True
    chat, user = update.effective_chat.id, update.effective_user.id
    context.job_queue.run_once(beep, 0.1, data={"at": datetime(2026, 1, 1, tzinfo=UTC)}, chat_id=chat, user_id=user)
    [job] = context.job_queue.get_jobs_by_name("beep")
    assert job.callback is beep
    assert job.next_t > datetime(2026, 1, 1, tzinfo=UTC)
    if current().attempt == 1:
        raise RuntimeError("at first")


async def repeat(update, context):
    job = context.job_queue.run_repeating(countdown, 0.2, chat_id=update.effective_chat.id, data={"left": 3})
    assert job.enabled
    assert not job.removed


async def failing(update, context):
    context.job_queue.run_repeating(fail_odd, 0.4, first=0, chat_id=update.effective_chat.id)


async def ticking(update, context):
    context.job_queue.run_repeating(tick, 1, chat_id=update.effective_chat.id)


async def held(update, context):
    """Sets jobs, and ends when the test opens the gate."""
    chat = update.effective_chat.id
    for name in ("one", "two"):
        context.job_queue.run_repeating(tick, 3600, first=0.1, chat_id=chat, name=name)
    for job in context.job_queue.get_jobs_by_name("old"):
        job.schedule_removal()
    await update.message.reply_text("holding")
    while not Path(os.environ[bots.GATES], "gate").exists():
        await asyncio.sleep(0.01)
    context.job_queue.run_repeating(tick, 3600, chat_id=chat, name="old")


async def elsewhere(update, context):
    """Jobs for other chats, and without a chat."""
    context.job_queue.run_once(beep, 0, data=1, name="another", chat_id=8)
    context.job_queue.run_once(notice, 0, data="now")
    context.job_queue.run_repeating(notice, 3600, name="hourly", chat_id=8, data="hourly")
    context.job_queue.run_daily(notice, time(8), name="morning\n*", data="daily")


async def remove(update, context):
    """From another chat."""
    names = sorted(job.name for job in context.job_queue.jobs("hour|^morning\n"))
    for name in names:
        for job in context.job_queue.get_jobs_by_name(name):
            job.schedule_removal()
        assert context.job_queue.get_jobs_by_name(name) == ()
    await update.message.reply_text(f"removed {names}")


async def unnameable(update, context):
    set_now = partial(context.job_queue.run_once, when=1)
    for callback in (lambda context: None, current().reply, partial(beep)):
        try:
            set_now(callback)
        except ValueError as refused:
            await update.message.reply_text(str(refused).partition(" cannot")[0])
    context.job_queue.run_custom(beep, {"trigger": "date"})


async def start(application):
    application.job_queue.run_once(notice, 0, data="started")
    assert [job.name for job in application.job_queue.get_jobs_by_name("notice")]


def main():
    application = Application.builder().token(TOKEN).post_init(start).build()
    application.add_handlers(
        [handler(each) for each in (once, repeat, failing, ticking, held, elsewhere, remove, unnameable)],
    )
    application.add_error_handler(error)
    application.job_queue.run_daily(notice, time(4), data="early")
    application.job_queue.run_daily(notice, time(20), data="late")
    application.job_queue.run_repeating(notice, 3600, chat_id=NOTICES, data="each hour")
    application.run_polling()
