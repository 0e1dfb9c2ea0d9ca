"""A TeleBot and an AsyncTeleBot that do what the text of a message says, and answer its `#<n>`."""

from __future__ import annotations

import os
import re
import signal

from telebot import TeleBot
from telebot.async_telebot import AsyncTeleBot

from tasks.bot import current
from tests.pipeline import bots as plain

TOKEN = os.environ.get("BOT_TOKEN", "1:none")

sync_bot = TeleBot(TOKEN)
async_bot = AsyncTeleBot(TOKEN)


@sync_bot.message_handler(func=lambda message: message.text.startswith("ask"))
def ask(message):
    sync_bot.reply_to(message, "Your name?")
    sync_bot.register_next_step_handler(message, greet, "Hello")


def greet(message, greeting):
    sync_bot.send_message(message.chat.id, f"{greeting} {message.text} from {os.environ[plain.WORKER]}")


@sync_bot.message_handler(func=lambda message: message.text.startswith("three"))
def three(message):
    for n in (1, 2, 3):
        sync_bot.send_message(message.chat.id, f"part {n}")
        if n == 2 and current().attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


@sync_bot.message_handler(func=lambda message: message.text.startswith("upload"))
def upload(message):
    sync_bot.send_document(message.chat.id, ("notes.txt", b"what was uploaded"), caption="a file")


@sync_bot.message_handler(func=lambda message: True)
def answer(message):
    ctx = current()
    plain.record("start", ctx)
    if message.text.startswith("fails"):
        raise RuntimeError(f"attempt {ctx.attempt}")
    sync_bot.send_message(message.chat.id, re.findall(r"#\d+", message.text)[0])
    plain.record("end", ctx)


@async_bot.message_handler(func=lambda message: True)
async def answer_async(message):
    ctx = current()
    plain.record("start", ctx)
    if message.text.startswith("fails"):
        raise RuntimeError(f"attempt {ctx.attempt}")
    await async_bot.send_message(message.chat.id, re.findall(r"#\d+", message.text)[0])
    plain.record("end", ctx)
