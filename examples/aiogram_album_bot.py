"""The same with aiogram. COLLECT=messages BOT=examples.aiogram_album_bot:dp"""

from aiogram import Dispatcher

dp = Dispatcher()


@dp.message()
async def answer(message, album):
    texts = [text for each in album if (text := each.text or each.caption)]
    if photos := [each.photo[-1] for each in album if each.photo]:
        await message.answer(f"{len(photos)} photos: {' '.join(texts)}")
    elif texts:
        await message.answer(f"{len(album)} messages: {' / '.join(texts)}")
