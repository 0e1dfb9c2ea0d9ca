from __future__ import annotations

from aiogram import Dispatcher

from chatlanes import current
from tests.bot.stream.bots.script import tokens_async

dp = Dispatcher()


@dp.message()
async def answer(message):
    ctx = current()
    await ctx.stream(tokens_async(message.text, ctx.attempt))
