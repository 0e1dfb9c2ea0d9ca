"""Bots of every framework that answer a message and a timer of its chat, with their framework's own calls."""

from __future__ import annotations

from chatlanes import Bot, current
from tests.bot.adapters.bots.script import TOKEN, note


def set_timer(text: str) -> None:
    current().later(0.3, {"text": text}, "echo")


def aiogram_bot() -> Bot:
    from aiogram import Bot as AiogramBot
    from aiogram import Dispatcher

    dp, bot = Dispatcher(), AiogramBot(TOKEN)
    dp.startup.register(lambda: note("startup"))

    @dp.message()
    async def answer(message):
        set_timer(message.text)
        await message.answer(f"in a moment, {len(current().timers())}")

    async def on_timer(ctx):
        sent = await bot.send_message(ctx.chat_id, ctx.timer.data["text"])
        await bot.send_message(ctx.chat_id, f"again {sent.text}")

    return Bot((dp, bot), on_timer=on_timer)


def telebot_bot() -> Bot:
    from telebot import TeleBot

    bot = TeleBot(TOKEN, threaded=False)

    @bot.message_handler(func=lambda _: True)
    def answer(message):
        set_timer(message.text)
        bot.send_message(message.chat.id, f"in a moment, {len(current().timers())}")

    def on_timer(ctx):
        sent = bot.send_message(ctx.chat_id, ctx.timer.data["text"])
        bot.send_message(ctx.chat_id, f"again {sent.text}")

    return Bot(bot, on_timer=on_timer)


def async_telebot_bot() -> Bot:
    from telebot.async_telebot import AsyncTeleBot

    bot = AsyncTeleBot(TOKEN)

    @bot.message_handler(func=lambda _: True)
    async def answer(message):
        set_timer(message.text)
        await bot.send_message(message.chat.id, f"in a moment, {len(current().timers())}")

    async def on_timer(ctx):
        sent = await bot.send_message(ctx.chat_id, ctx.timer.data["text"])
        await bot.send_message(ctx.chat_id, f"again {sent.text}")

    return Bot(bot, on_timer=on_timer)


def ptb_bot() -> Bot:
    from telegram.ext import Application, MessageHandler

    async def answer(update, context):
        set_timer(update.message.text)
        await update.message.reply_text(f"in a moment, {len(current().timers())}")

    async def on_timer(ctx):
        sent = await application.bot.send_message(ctx.chat_id, ctx.timer.data["text"])
        await application.bot.send_message(ctx.chat_id, f"again {sent.text}")

    application = Application.builder().token(TOKEN).build()
    application.add_handler(MessageHandler(None, answer))
    return Bot(application, on_timer=on_timer)


async def main() -> None:
    from aiogram import Bot as AiogramBot
    from aiogram import Dispatcher

    dp = Dispatcher()
    made["bot"] = AiogramBot(TOKEN)

    @dp.message()
    async def answer(message):
        set_timer(message.text)
        await message.answer(f"in a moment, {len(current().timers())}")

    await dp.start_polling(made["bot"])


async def main_on_timer(ctx):
    sent = await made["bot"].send_message(ctx.chat_id, ctx.timer.data["text"])
    await made["bot"].send_message(ctx.chat_id, f"again {sent.text}")


made = {}
of_main = Bot(main, on_timer=main_on_timer)
