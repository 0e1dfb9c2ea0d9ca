"""An AsyncTeleBot that follows the script; its conversation is a state with data."""

from __future__ import annotations

import asyncio

from telebot.async_telebot import AsyncTeleBot
from telebot.asyncio_filters import StateFilter
from telebot.asyncio_handler_backends import State, StatesGroup

from tests.bot.adapters.bots.script import GREETING, MOMENT_S, QUESTION, TOKEN, greeted, said

bot = AsyncTeleBot(TOKEN)
bot.add_custom_filter(StateFilter(bot))


class AsyncGreetingStates(StatesGroup):
    name = State()


@bot.message_handler(state=AsyncGreetingStates.name)
async def greet(message):
    async with bot.retrieve_data(message.from_user.id, message.chat.id) as data:
        greeting = data["greeting"]
    await bot.delete_state(message.from_user.id, message.chat.id)
    await bot.send_message(message.chat.id, greeted(greeting, message.text))


@bot.message_handler(func=lambda message: message.text == "ask")
async def ask(message):
    await bot.set_state(message.from_user.id, AsyncGreetingStates.name, message.chat.id)
    await bot.add_data(message.from_user.id, message.chat.id, greeting=GREETING)
    await bot.reply_to(message, QUESTION)


@bot.message_handler(func=lambda message: True)
async def answer(message):
    for text in said(message.text):
        await (bot.send_message(message.chat.id, text) if text else asyncio.sleep(MOMENT_S))
