"""Bots that send the results of their calls: None for those that were skipped, or whose results were not stored.

A worker imports only the framework of the bot that it asks for.
"""

from __future__ import annotations

from tests.bot.adapters.bots.script import TOKEN

CHAT = 7


def __getattr__(name):
    if name not in MADE:
        raise AttributeError(name)
    return MADE[name]()


def _telebot():
    from telebot import TeleBot
    from telebot.types import InputMediaPhoto

    bot = TeleBot(TOKEN)

    @bot.message_handler()
    def answer(message):
        results = [
            bot.send_message(CHAT, "hello"),
            bot.edit_message_text("new", CHAT, 1),
            bot.copy_message(CHAT, CHAT, 1),
            bot.delete_message(CHAT, 1),
            bot.send_media_group(CHAT, [InputMediaPhoto("F1"), InputMediaPhoto("F2")]),
            bot.forward_messages(CHAT, CHAT, [1, 2]),
            bot.copy_messages(CHAT, CHAT, [1, 2]),
        ]
        bot.send_message(CHAT, str(results))

    return bot


def _async_telebot():
    from telebot.async_telebot import AsyncTeleBot
    from telebot.types import InputMediaPhoto

    bot = AsyncTeleBot(TOKEN)

    @bot.message_handler()
    async def answer(message):
        results = [
            await bot.send_message(CHAT, "hello"),
            await bot.edit_message_text("new", CHAT, 1),
            await bot.copy_message(CHAT, CHAT, 1),
            await bot.delete_message(CHAT, 1),
            await bot.send_media_group(CHAT, [InputMediaPhoto("F1"), InputMediaPhoto("F2")]),
            await bot.forward_messages(CHAT, CHAT, [1, 2]),
            await bot.copy_messages(CHAT, CHAT, [1, 2]),
        ]
        await bot.send_message(CHAT, str(results))

    return bot


def _aiogram():
    from aiogram import Dispatcher
    from aiogram.types import InputMediaPhoto

    async def answer(message, bot):
        results = [
            await message.answer("hello"),
            await bot.edit_message_text("new", chat_id=CHAT, message_id=1),
            await bot.copy_message(CHAT, CHAT, 1),
            await bot.delete_message(CHAT, 1),
            await message.answer_media_group([InputMediaPhoto(media="F1"), InputMediaPhoto(media="F2")]),
            await bot.forward_messages(CHAT, CHAT, [1, 2]),
            await bot.copy_messages(CHAT, CHAT, [1, 2]),
        ]
        await message.answer(str(results))

    dispatcher = Dispatcher()
    dispatcher.message.register(answer)
    return dispatcher


def _ptb():
    from telegram import InputMediaPhoto
    from telegram.ext import Application, MessageHandler, filters

    async def answer(update, context):
        bot, message = context.bot, update.message
        results = [
            await message.reply_text("hello"),
            await bot.editMessageText("new", CHAT, 1),
            await bot.copy_message(CHAT, CHAT, 1),
            await bot.delete_message(CHAT, 1),
            await message.reply_media_group([InputMediaPhoto("F1"), InputMediaPhoto("F2")]),
            await bot.forward_messages(CHAT, CHAT, [1, 2]),
            await bot.copy_messages(CHAT, CHAT, [1, 2]),
        ]
        await message.reply_text(str(results))

    application = Application.builder().token(TOKEN).build()
    application.add_handler(MessageHandler(filters.TEXT, answer))
    return application


MADE = {"telebot": _telebot, "async_telebot": _async_telebot, "aiogram": _aiogram, "ptb": _ptb}
