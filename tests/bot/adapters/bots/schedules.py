"""Bots of frameworks with a schedule whose function uses the framework's own calls."""

from __future__ import annotations

from aiogram import Bot, Dispatcher
from telegram.ext import Application

from chatlanes import Schedule
from tests.bot.adapters.bots.script import TOKEN, note

CHAT = 7

aiogram_bot = Dispatcher(), Bot(TOKEN)
aiogram_bot[0].startup.register(lambda: note("startup"))


async def send_by_aiogram(ctx):
    await aiogram_bot[1].send_message(CHAT, f"{ctx.schedule.name}, attempt 1")
    assert ctx.attempt > 1, "the first attempt fails"
    await aiogram_bot[1].send_message(CHAT, "done")


ptb_bot = Application.builder().token(TOKEN).build()


async def send_by_ptb(ctx):
    await ptb_bot.bot.send_message(CHAT, f"{ctx.schedule.name}, attempt 1")
    assert ctx.attempt > 1, "the first attempt fails"
    await ptb_bot.bot.send_message(CHAT, "done")


of_aiogram = [Schedule("digest", "* * * * * *", send_by_aiogram)]
of_ptb = [Schedule("digest", "* * * * * *", send_by_ptb)]
