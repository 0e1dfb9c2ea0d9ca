"""A bot that answers what it was given, for tests of COLLECT and INTERRUPT: the ids of its updates, and their texts.

A text may contain orders: `gate:a` waits until the test opens gate a, `poll:a` too, or until the run is interrupted,
`shield:a` waits inside of a shield, `stream:a` inside of a stream that an interrupt deletes, `draft:a` the same with
a draft, `steer:a` waits and answers to what arrives, `one:a` to the first of it, `look:a` to what has arrived,
`asks:a` asks a question, `mode:steer` chooses a mode, `bulk:2` sends two messages and deletes them in one call,
`fails:2` fails the first two attempts. If `dies` arrives, it kills the first run.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from chatlanes.bot import Bot
from chatlanes.bot.context import Context
from tests.support.bots import GATES, record

ORDERS = re.compile(r"(\w+):(\w+)")
#: Updates without a name are not collected.
NAMES = re.compile(r"name:(\w+)")


def handle(ctx: Context) -> None:
    """Delete what an interrupted run has sent, send a first message, execute the orders, answer."""
    record("start", ctx)
    try:
        for call in ctx.previous_calls:
            if call.method == "sendMessage" and call.result:
                ctx.delete(message=call.result)
        ctx.session["runs"] = ctx.session.get("runs", 0) + 1
        orders = ORDERS.findall(ctx.text)
        if orders:
            ctx.reply("one moment")
        for order, value in orders:
            execute(ctx, order, value)
        ctx.reply(answer(ctx))
    except BaseException as error:
        record(type(error).__name__, ctx)
        raise
    record("end", ctx)


async def handle_async(ctx: Any) -> None:
    """The same on the event loop."""
    record("start", ctx)
    try:
        for call in ctx.previous_calls:
            if call.method == "sendMessage" and call.result:
                await ctx.delete(message=call.result)
        ctx.session["runs"] = ctx.session.get("runs", 0) + 1
        orders = ORDERS.findall(ctx.text)
        if orders:
            await ctx.reply("one moment")
        for order, value in orders:
            await execute_async(ctx, order, value)
        await ctx.reply(answer(ctx))
    except BaseException as error:
        record(type(error).__name__, ctx)
        raise
    record("end", ctx)


def on_error(ctx: Context, error: Exception) -> None:
    record("on_error", ctx)


def on_stop(ctx: Context) -> None:
    record("on_stop", ctx)
    ctx.reply(f"{ctx.kind} after {ctx.session.get('runs', 0)} runs")


async def on_stop_async(ctx: Any) -> None:
    record("on_stop", ctx)
    await ctx.reply(f"{ctx.kind} after {ctx.session.get('runs', 0)} runs")


def on_limited(ctx: Context) -> None:
    record("on_limited", ctx)
    for order, value in ORDERS.findall(ctx.text):
        execute(ctx, order, value)
    ctx.reply(f"slowly, after {ctx.session.get('runs', 0)} runs")


async def on_limited_async(ctx: Any) -> None:
    record("on_limited", ctx)
    await ctx.reply(f"slowly, after {ctx.session.get('runs', 0)} runs")


bot = Bot(handle, on_error=on_error)
bot_async = Bot(handle_async, on_error=on_error)
bot_stopped = Bot(handle, on_error=on_error, on_stop=on_stop)
bot_limited = Bot(handle, on_error=on_error, on_limited=on_limited)
bot_async_limited = Bot(handle_async, on_error=on_error, on_limited=on_limited_async)
bot_async_stopped = Bot(handle_async, on_error=on_error, on_stop=on_stop_async)


def answer(ctx: Context) -> str:
    ids = ",".join(str(update["update_id"]) for update in ctx.updates)
    return f"{ids}: {ctx.text or ctx.kind}, {len(ctx.photos)} photos"


def execute(ctx: Context, order: str, value: str) -> None:
    if order == "gate":
        pass_gate(value)
    elif order == "poll":
        while not ctx.interrupted and not is_open(value):
            time.sleep(0.005)
    elif order == "shield":
        with ctx.shield():
            pass_gate(value)
            ctx.reply("booked")
    elif order in ("stream", "draft"):
        with ctx.stream(on_interrupt="delete", draft=order == "draft") as out:
            while not is_open(value):
                out.write(f"streams {value} and {value} and {value} ")
                time.sleep(0.02)
    elif order in ("steer", "one", "look"):
        take(ctx, order, value)
    else:
        execute_at_once(ctx, order, value)


def execute_at_once(ctx: Context, order: str, value: str) -> None:
    if order == "asks":
        ctx.reply(f"answer {ctx.ask('sure?')}")
    elif order == "mode":
        before, ctx.mode = ctx.mode, None if value == "none" else value  # type: ignore[assignment]
        ctx.reply(f"mode {before} {ctx.mode}")
    elif order == "bulk":
        sent = [ctx.reply("for a moment")["message_id"] for _ in range(int(value))]
        ctx.call("deleteMessages", chat_id=ctx.chat_id, message_ids=sent)
    elif order == "fails" and ctx.attempt <= int(value):
        raise RuntimeError(f"attempt {ctx.attempt}")


def take(ctx: Context, order: str, gate: str) -> None:
    while not is_open(gate):
        for update in ctx.arrivals():
            ctx.reply(took(ctx, update))
            if order == "one":
                return
        if order == "look":
            ctx.reply("looked")
            return
        time.sleep(0.005)


async def take_async(ctx: Any, order: str, gate: str) -> None:
    while not is_open(gate):
        async for update in ctx.arrivals():
            await ctx.reply(took(ctx, update))
            if order == "one":
                return
        if order == "look":
            await ctx.reply("looked")
            return
        await asyncio.sleep(0.005)


def took(ctx: Context, update: dict[str, Any]) -> str:
    text = update["message"]["text"]
    record("took", ctx)
    if text == "dies" and ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"took {text}"


async def execute_async(ctx: Any, order: str, value: str) -> None:
    if order == "shield":
        async with ctx.shield():
            await pass_gate_async(value)
            await ctx.reply("booked")
    elif order in ("gate", "poll"):
        await pass_gate_async(value)
    elif order == "stream":
        async with ctx.stream() as out:
            while not is_open(value):
                out.write(f"streams {value} and {value} and {value} ")
                await asyncio.sleep(0.02)
    elif order in ("steer", "one", "look"):
        await take_async(ctx, order, value)
    elif order == "mode":
        before, ctx.mode = ctx.mode, None if value == "none" else value
        await ctx.reply(f"mode {before} {ctx.mode}")
    elif order == "asks":
        await ctx.reply(f"answer {await ctx.ask('sure?')}")


def pass_gate(gate: str) -> None:
    while not is_open(gate):
        time.sleep(0.005)


async def pass_gate_async(gate: str) -> None:
    while not is_open(gate):
        await asyncio.sleep(0.005)


def is_open(gate: str) -> bool:
    """Also note that the gate was reached."""
    Path(os.environ[GATES], f"{gate}.reached").touch()
    return Path(os.environ[GATES], gate).exists()


def by_name(update: dict[str, Any]) -> str | None:
    found = NAMES.search(update["message"]["text"])
    return found and found[1]
