"""Bots that pay with ctx.step, one per framework. The first word of a message says where its first run waits until it
is killed: `before` or `after` the payment, in the `function`, or `nowhere`. The second is `uncertain` of the step.

A worker imports only the framework of the bot that it asks for.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from chatlanes import current
from tests.bot.adapters.bots.script import TOKEN
from tests.support.bots import GATES, record


def __getattr__(name):
    if name not in MADE:
        raise AttributeError(name)
    return MADE[name]()


def payments(folder: Path) -> list[str]:
    """The keys of all payments."""
    file = folder / "payments"
    return file.read_text().split() if file.exists() else []


def waits_at(ctx, place):
    if ctx.attempt > 1 or ctx.text.split()[0] != place:
        return False
    record(f"at-{place}", ctx)
    return True


def hold(ctx, place):
    while waits_at(ctx, place):
        time.sleep(60)


async def hold_soon(ctx, place):
    while waits_at(ctx, place):
        await asyncio.sleep(60)


def charge(ctx, key, fence):
    assert fence == ctx.fence
    with (Path(os.environ[GATES]) / "payments").open("a") as file:
        file.write(f"{key}\n")
    hold(ctx, "function")
    return {"receipt": key}


async def charge_soon(ctx, key, fence):
    return await asyncio.to_thread(charge, ctx, key, fence)


def plain(ctx):
    hold(ctx, "before")
    paid = ctx.step("charge", charge, ctx, uncertain=ctx.text.split()[1])
    hold(ctx, "after")
    return ctx.reply(receipt(ctx, paid))


async def pay(function, reply):
    ctx = current()
    await hold_soon(ctx, "before")
    paid = await ctx.step("charge", function, ctx, uncertain=ctx.text.split()[1])
    await hold_soon(ctx, "after")
    await reply(receipt(ctx, paid))


def receipt(ctx, paid):
    return f"{ctx.text}: {paid and paid['receipt']}"


def _telebot():
    from telebot import TeleBot

    bot = TeleBot(TOKEN)

    @bot.message_handler(func=lambda _: True)
    def handle(message):
        plain(current())

    return bot


def _aiogram():
    from aiogram import Dispatcher

    dispatcher = Dispatcher()

    @dispatcher.message()
    async def handle(message):
        await pay(charge_soon, message.answer)

    return dispatcher


def _ptb():
    from telegram.ext import Application, MessageHandler, filters

    async def handle(update, _):
        await pay(charge, update.message.reply_text)

    application = Application.builder().token(TOKEN).build()
    application.add_handler(MessageHandler(filters.TEXT, handle))
    return application


MADE = {"telebot": _telebot, "aiogram": _aiogram, "ptb": _ptb}
