"""A Dispatcher that follows the script; its conversation is a state with data."""

from __future__ import annotations

import asyncio

from aiogram import Dispatcher, F
from aiogram.fsm.state import State, StatesGroup

from tests.bot.adapters.bots.script import GREETING, MOMENT_S, QUESTION, greeted, note, said

dp = Dispatcher()


class GreetingStates(StatesGroup):
    name = State()


@dp.startup()
async def started(bot):
    await bot.get_me()
    note("startup")


@dp.shutdown()
async def stopped():
    note("shutdown")


@dp.message(GreetingStates.name)
async def greet(message, state):
    greeting = (await state.get_data())["greeting"]
    await state.clear()
    await message.answer(greeted(greeting, message.text))


@dp.message(F.text == "ask")
async def ask(message, state):
    await state.set_state(GreetingStates.name)
    await state.update_data(greeting=GREETING)
    await message.answer(QUESTION)


@dp.message()
async def answer(message):
    for text in said(message.text):
        await (message.answer(text) if text else asyncio.sleep(MOMENT_S))
