"""A Dispatcher that was made with its bot, as `Dispatcher(bot=bot)`."""

from __future__ import annotations

from aiogram import Bot, Dispatcher

from tests.bot.adapters.bots.script import TOKEN, note

bot = Bot(TOKEN)
dp = Dispatcher(bot=bot, greeting="hello")
app = (dp, bot)


@dp.startup()
async def started(bot, greeting):
    await bot.get_me()
    note("startup")


@dp.shutdown()
async def stopped(bot, greeting):
    note("shutdown")


@dp.message()
async def answer(message, bot, greeting):
    await bot.send_message(message.chat.id, greeting)
