"""Plain functions that follow the script."""

from __future__ import annotations

import asyncio
import time

from tests.bot.adapters.bots.script import GREETING, MOMENT_S, QUESTION, greeted, said


def handle(ctx):
    if ctx.session.pop("asked", False):
        ctx.reply(greeted(GREETING, ctx.text))
    elif ctx.text == "ask":
        ctx.session["asked"] = True
        ctx.reply(QUESTION)
    else:
        for text in said(ctx.text):
            ctx.reply(text) if text else time.sleep(MOMENT_S)


async def handle_async(ctx):
    if ctx.session.pop("asked", False):
        await ctx.reply(greeted(GREETING, ctx.text))
    elif ctx.text == "ask":
        ctx.session["asked"] = True
        await ctx.reply(QUESTION)
    else:
        for text in said(ctx.text):
            await (ctx.reply(text) if text else asyncio.sleep(MOMENT_S))
