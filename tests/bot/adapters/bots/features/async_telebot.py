"""An AsyncTeleBot with common features: a middleware, a listener, a download, `bot.user`, inline queries."""

from __future__ import annotations

import asyncio

from telebot import types
from telebot.async_telebot import AsyncTeleBot
from telebot.asyncio_handler_backends import BaseMiddleware, SkipHandler

from tests.bot.adapters.bots.script import TOKEN

bot = AsyncTeleBot(TOKEN, parse_mode="HTML")


class SkipMiddleware(BaseMiddleware):
    update_types = ("message",)

    async def pre_process(self, message, data):
        return SkipHandler() if message.text == "skip" else None

    async def post_process(self, message, data, exception):
        if message.text == "skip":
            await bot.send_message(message.chat.id, "skipped")


async def listen(messages):
    await asyncio.sleep(0.01)
    for message in messages:
        await bot.send_message(message.chat.id, f"{bot.user.username} heard {message.text}")


bot.setup_middleware(SkipMiddleware())
bot.set_update_listener(listen)


@bot.message_handler(content_types=["document"])
async def document(message):
    found = await bot.get_file(message.document.file_id)
    await bot.send_message(message.chat.id, (await bot.download_file(found.file_path)).decode())


@bot.message_handler(regexp="^fails")
async def fail(message):
    raise RuntimeError(message.text)


@bot.message_handler(func=lambda message: True)
async def answer(message):
    await bot.send_message(message.chat.id, "answer")


@bot.inline_handler(lambda query: True)
async def offer(query):
    article = types.InlineQueryResultArticle("1", "t", types.InputTextMessageContent("x"))
    await bot.answer_inline_query(query.id, [article])
