"""The same bot with aiogram. BOT=examples.aiogram_bot:dp"""

from aiogram import Dispatcher, F, types
from aiogram.filters import Command

dp = Dispatcher()
PRESS = types.InlineKeyboardButton(text="Press me", callback_data="pressed")
BUTTON = types.InlineKeyboardMarkup(inline_keyboard=[[PRESS]])


@dp.message(Command("start"))
async def start(message):
    await message.reply("Send me something, or /count, /button, /photo.")


@dp.message(Command("count"))
async def count(message, state):
    data = await state.update_data(n=(await state.get_data()).get("n", 0) + 1)
    await message.reply(str(data["n"]))


@dp.message(Command("button"))
async def button(message):
    await message.answer("Here it is.", reply_markup=BUTTON)


@dp.callback_query(F.data == "pressed")
async def pressed(query):
    await query.answer("Thank you.")


@dp.message(Command("photo"))
async def photo(message):
    await message.answer_photo(types.FSInputFile(__file__.replace("aiogram_bot.py", "photo.png")))


@dp.message(F.text)
async def echo(message):
    await message.reply(message.text)
