"""Handlers without a framework."""

from __future__ import annotations

from typing import Any

from chatlanes import Context
from tests.bot.stream.bots.script import tokens, tokens_async, write


def handle(ctx: Context) -> None:
    with ctx.stream() as out:
        for token in tokens(ctx.text, ctx.attempt):
            write(out, token)


def handle_drafts(ctx: Context) -> None:
    with ctx.stream(draft=True) as out:
        for token in tokens(ctx.text, ctx.attempt):
            write(out, token)


def handle_deleting(ctx: Context) -> None:
    with ctx.stream(on_interrupt="delete") as out:
        for token in tokens(ctx.text, ctx.attempt):
            write(out, token)


async def handle_async(ctx: Any) -> None:
    async with ctx.stream() as out:
        async for token in tokens_async(ctx.text, ctx.attempt):
            write(out, token)
