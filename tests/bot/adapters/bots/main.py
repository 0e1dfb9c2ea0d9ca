"""Bots in common styles: an `async def main()` that prepares, polls and cleans up; and async factories.

A worker imports only the framework of the bot that it asks for.
"""

from __future__ import annotations

import asyncio
import sqlite3

from tests.bot.adapters.bots.script import TOKEN, note

OWNER = 999


async def main():
    from aiogram import Bot, Dispatcher
    from aiogram.types import BotCommand

    bot, dp = Bot(TOKEN), Dispatcher()
    dp.message.register(answer)
    dp.startup.register(started)
    await bot.delete_webhook(drop_pending_updates=True)
    await bot.set_my_commands([BotCommand(command="start", description="Begin")])
    await bot.send_message(OWNER, "started")
    with_database = sqlite3.connect(":memory:")
    try:
        await dp.start_polling(bot, database=with_database)
    finally:
        with_database.close()
        await bot.session.close()
        note("closed")


async def started():
    note("startup")


async def answer(message, database=None):
    """The keyword arguments of polling are passed on; the database was opened in the thread of the handlers."""
    text = database.execute("SELECT 'answer'").fetchone()[0] if database else "answer"
    await message.answer(f"{text} {message.text}")


async def telebot_main():
    from telebot.async_telebot import AsyncTeleBot
    from telebot.types import BotCommand

    bot = AsyncTeleBot(TOKEN)

    @bot.message_handler(func=lambda _: True)
    async def answer_here(message):
        await bot.send_message(message.chat.id, f"answer {message.text}")

    await bot.delete_webhook()
    await bot.set_my_commands([BotCommand("start", "Begin")])
    await bot.send_message(OWNER, "started")
    await bot.infinity_polling(skip_pending=True)
    note("closed")


async def ptb_main():
    from telegram.ext import Application, MessageHandler, filters

    application = Application.builder().token(TOKEN).build()
    application.add_handler(MessageHandler(filters.TEXT, ptb_answer))
    try:
        async with application:
            await application.bot.set_my_commands([("start", "Begin")])
            await application.bot.send_message(OWNER, "started")
            await application.start()
            await application.updater.start_polling()
            await asyncio.Event().wait()
    finally:
        note("closed")


async def ptb_answer(update, _):
    await update.message.reply_text(f"answer {update.message.text}")


async def factory():
    from aiogram import Bot, Dispatcher

    bot, dp = Bot(TOKEN), Dispatcher()
    dp.message.register(answer)
    return dp, bot


async def plain_factory():
    async def handle(ctx):
        await ctx.reply(f"answer {ctx.text}")

    return handle


def plain_main():
    """A synchronous main() that makes a call before it polls."""
    from aiogram import Bot, Dispatcher

    dp = Dispatcher()
    dp.message.register(answer)
    asyncio.run(announce())
    dp.run_polling(Bot(TOKEN))


async def announce():
    from aiogram import Bot
    from aiogram.types import BotCommand

    async with Bot(TOKEN) as bot:
        await bot.set_my_commands([BotCommand(command="start", description="Begin")])
        await bot.send_message(OWNER, "started")


async def broken():
    raise RuntimeError("no database")


async def returns_nothing():
    await asyncio.sleep(0)
