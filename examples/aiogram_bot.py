"""The same bot with aiogram. BOT=examples.aiogram_bot:dp"""

from pathlib import Path

from aiogram import Dispatcher, F
from aiogram.filters import Command
from aiogram.types import FSInputFile, InlineKeyboardButton, InlineKeyboardMarkup

dp = Dispatcher()
BUTTON = InlineKeyboardMarkup(inline_keyboard=[[InlineKeyboardButton(text="Press me", callback_data="pressed")]])


@dp.message(Command("start"))
async def start(message):
    await message.reply("Send me something, or /count, /button, /photo.")


@dp.message(Command("count"))
async def count(message, state):
    data = await state.get_data()
    await state.update_data(n=data.get("n", 0) + 1)
    await message.reply(str(data.get("n", 0) + 1))


@dp.message(Command("button"))
async def button(message):
    await message.answer("Here it is.", reply_markup=BUTTON)


@dp.callback_query(F.data == "pressed")
async def pressed(query):
    await query.answer("Thank you.")


@dp.message(Command("photo"))
async def photo(message):
    await message.answer_photo(FSInputFile(Path(__file__).with_name("photo.png")))


@dp.message(F.text)
async def echo(message):
    await message.reply(message.text)
