"""Bots whose handlers send a word every 10 ms, with the id of their process, until they are stopped."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from chatlanes.bot import Bot
from chatlanes.bot.context import Context

EVERY_S = 0.01
#: The answer to a stop.
STOPPED = "stopped"


def send(ctx: Context) -> None:
    while True:
        ctx.reply(str(os.getpid()))
        time.sleep(EVERY_S)


async def send_soon(ctx: Any) -> None:
    while True:
        await ctx.reply(str(os.getpid()))
        await asyncio.sleep(EVERY_S)


def on_stop(ctx: Context) -> None:
    ctx.reply(STOPPED)


async def on_stop_soon(ctx: Any) -> None:
    await ctx.reply(STOPPED)


plain = Bot(send, on_stop=on_stop)
coroutine = Bot(send_soon, on_stop=on_stop_soon)
