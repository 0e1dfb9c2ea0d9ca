"""A Dispatcher that does what the text of a message says, and answers its `#<n>`."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from aiogram import Dispatcher, F
from aiogram.fsm.state import State, StatesGroup
from aiogram.types import BufferedInputFile

from tasks.bot import current
from tests.pipeline import bots as plain

dp = Dispatcher()


class Asking(StatesGroup):
    name = State()


@dp.startup()
async def started(bot):
    await bot.get_me()
    note("startup")


@dp.shutdown()
async def stopped():
    note("shutdown")


def note(what: str) -> None:
    with Path(os.environ[plain.GATES], what).open("a") as file:
        file.write(f"{os.getpid()}\n")


@dp.message(Asking.name)
async def greet(message, state):
    greeting = (await state.get_data())["greeting"]
    await state.clear()
    await message.answer(f"{greeting} {message.text} from {os.environ[plain.WORKER]}")


@dp.message(F.text.startswith("ask"))
async def ask(message, state):
    await state.set_state(Asking.name)
    await state.update_data(greeting="Hello")
    await message.answer("Your name?")


@dp.message(F.text.startswith("three"))
async def three(message):
    for n in (1, 2, 3):
        await message.answer(f"part {n}")
        if n == 2 and current().attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@dp.message(F.text.startswith("upload"))
async def upload(message):
    await message.answer_document(BufferedInputFile(b"what was uploaded", "notes.txt"), caption="a file")


@dp.message()
async def answer(message):
    ctx = current()
    plain.record("start", ctx)
    if message.text.startswith("fails"):
        raise RuntimeError(f"attempt {ctx.attempt}")
    sent = message.answer(re.findall(r"#\d+", message.text)[0])
    plain.record("end", ctx)
    return sent
