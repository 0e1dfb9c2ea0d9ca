"""Bots that pay, ask twice and answer, one per framework."""

from __future__ import annotations

import time

from chatlanes import AskTimeout, Bot, current
from tests.bot.adapters.bots.script import TOKEN
from tests.support.bots import record


def __getattr__(name):
    if name not in MADE:
        raise AttributeError(name)
    return MADE[name]()


def price(ctx, key):
    record("priced", ctx)
    return key


def hold(ctx, where):
    """In its first run with this answer, wait until it is killed, or stopped."""
    if where == "poll":
        record("at-poll", ctx)
        while not ctx.interrupted:
            time.sleep(0.02)
    if where == "hold" and ctx.attempt == 1:
        ctx.reply("held")
        record("at-hold", ctx)
        while True:
            time.sleep(60)


def plain(ctx):
    if ctx.text == "fail":
        raise RuntimeError("the handler fails")
    if not ctx.text.startswith("buy"):
        ctx.reply(f"heard {ctx.text}")
        return
    record("start", ctx)
    ctx.reply("one moment")
    paid = ctx.step("price", price, ctx)
    ctx.session["runs"] = ctx.session.get("runs", 0) + 1
    try:
        sure = ctx.ask("Sure?", buttons=["Yes", "No"], timeout=1 if ctx.text == "buy soon" else 60)
    except AskTimeout:
        sure = "too late"
    where = ctx.ask("Where to?", unrelated="remind") if sure == "Yes" else "nowhere"
    hold(ctx, where)
    ctx.reply(f"{ctx.text} {paid}: {sure}, {where}")


def paying(ctx):
    if ctx.ask("Sure?", buttons=["Yes", "No"]) == "Yes":
        ctx.reply(f"paid {ctx.step('price', price, ctx)}")
    else:
        ctx.reply("not paid")


def deciding(ctx):
    """Pays, and waits for the next message to arrive."""
    if ctx.text != "buy":
        ctx.reply(f"heard {ctx.text}")
        return
    sure = ctx.ask("Sure?", buttons=["Yes", "No"], unrelated="remind")
    paid = ctx.step("price", price, ctx)
    while sure == "Yes" and not ctx.interrupted and not ctx.stored.following():
        time.sleep(0.02)
    ctx.reply(f"{paid}: {sure}")


async def streaming(ctx):
    """Its model answers something else each time."""

    async def model():
        record("asked-model", ctx)
        yield f"thought at {time.time_ns()}"

    await ctx.stream(model(), draft=True)
    paid = await ctx.step("price", price, ctx)
    await ctx.reply("one moment")
    sure = await ctx.ask("Sure?", buttons=["Yes", "No"])
    await ctx.reply(f"{ctx.text} {paid}: {sure}, nowhere")


def slow(ctx):
    """Writes the same text in each run: in the first one of an update so slowly that its beginning is shown."""
    with ctx.stream() as out:
        out.write("It is a long way to Rome, and")
        time.sleep(1 if ctx.attempt == 1 else 0)
        out.write(" back.")
    ctx.reply(f"{ctx.ask('Sure?', buttons=['Yes', 'No'])}, nowhere")


def changing(ctx):
    ctx.reply(f"it is {time.time_ns()}")
    paid = ctx.step("price", price, ctx)
    sure = ctx.ask("Sure?", buttons=["Yes", "No"])
    ctx.reply(f"{ctx.text} {paid}: {sure}, nowhere")


def tidy(ctx):
    ctx.delete(message=ctx.reply("one moment"))
    sure = ctx.ask("Sure?", buttons=["Yes", "No"])
    ctx.reply(f"it is {sure}")


def cleaning(ctx):
    for call in ctx.previous_calls:
        ctx.delete(message=call.result)
    ctx.reply("looking")
    if ctx.text == "poll":
        hold(ctx, "poll")
    sure = ctx.ask("Sure?", buttons=["Yes", "No"])
    where = ctx.ask("Where to?") if sure == "Yes" else "nowhere"
    for call in ctx.previous_calls:
        ctx.delete(message=call.result)
    ctx.reply(f"to {where}")
    hold(ctx, where)


def stateful(ctx):
    if ctx.text in ("/form", "/end"):
        ctx.session["form"] = ctx.text == "/form"
    elif ctx.session.get("form"):
        ctx.reply(f"age? {ctx.text}")
    else:
        ctx.reply(f"bought: {ctx.ask('Sure?', buttons=['Yes', 'No'])}")


def on_limited(ctx):
    ctx.reply(f"{ctx.text} waits: {ctx.ask('Wait?', buttons=['Yes', 'No'])}")


limited = Bot(lambda ctx: ctx.reply(f"heard {ctx.text}"), on_limited=on_limited)


def booking(ctx):
    where = ctx.ask("Where to?")
    paid = ctx.step("price", price, ctx)
    hold(ctx, where)
    ctx.reply(f"{paid}: {where}")


async def answer(reply):
    ctx = current()
    await reply("one moment")
    paid = await ctx.step("price", price, ctx)
    sure = await ctx.ask("Sure?", buttons=["Yes", "No"])
    where = await ctx.ask("Where to?") if sure == "Yes" else "nowhere"
    await reply(f"{ctx.text} {paid}: {sure}, {where}")


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
        await answer(message.answer)

    return dispatcher


def _ptb():
    from telegram.ext import Application, MessageHandler, filters

    async def handle(update, _):
        await answer(update.message.reply_text)

    application = Application.builder().token(TOKEN).build()
    application.add_handler(MessageHandler(filters.TEXT, handle))
    return application


def on_error(ctx, error):
    try:
        ctx.ask("What now?")
    except LookupError as refused:
        ctx.reply(str(refused))


careful = Bot(plain, on_error=on_error)

MADE = {"telebot": _telebot, "aiogram": _aiogram, "ptb": _ptb}
