"""A Dispatcher with more than handlers: calls concurrent to the handler, tasks that outlive it, downloads, error
handlers. Created by a function that calls `run_polling`.
"""

from __future__ import annotations

import asyncio

from aiogram import Bot, Dispatcher, F
from aiogram.fsm.strategy import FSMStrategy
from aiogram.types import Message
from aiogram.utils.chat_action import ChatActionSender

from chatlanes.bot import current
from tests.bot.adapters.bots.script import TOKEN


async def started(bot: Bot):
    await bot.delete_webhook(drop_pending_updates=True)


async def types(message: Message, bot: Bot):
    """Chat actions are sent concurrently to the messages, without a fixed position."""
    async with ChatActionSender.typing(bot=bot, chat_id=message.chat.id, interval=0.01):
        await asyncio.sleep(0.03)
        await message.answer("one")
        await asyncio.sleep(0.05 * current().attempt)
        await message.answer("two")
        if current().attempt == 1:
            raise RuntimeError("at first")


async def leaves(message: Message):
    async def later():
        while True:
            await asyncio.sleep(0.005)
            try:
                current()
            except LookupError:
                break
        await message.answer("after the update")

    message.bot.left = asyncio.create_task(later())
    await message.answer("in the update")


async def downloads(message: Message, bot: Bot):
    await message.answer((await bot.download("F1")).read().decode())


async def keeps(message: Message, state):
    await state.update_data(sent=await message.answer("kept"), asked=message)


async def edits(message: Message, state):
    data = await state.get_data()
    await data["sent"].edit_text(f"edited {data['asked'].text}")


async def handled(message: Message):
    raise ValueError("taken by an error handler")


async def handle_error(event):
    await event.update.message.answer("handled")


def main():
    dispatcher = Dispatcher(fsm_strategy=FSMStrategy.GLOBAL_USER)
    dispatcher.startup.register(started)
    dispatcher.errors.register(
        handle_error, F.exception.as_("error") & F.exception.func(lambda each: type(each) is ValueError)
    )
    for each in (types, leaves, downloads, keeps, edits, handled):
        dispatcher.message.register(each, F.text == each.__name__)
    dispatcher.run_polling(Bot(TOKEN))
