"""A bot with timers. It executes the orders in the text of a message, or in the data of a timer (bots.py), and appends
what happened to the file `timers`: one line of JSON for each event.
"""

from __future__ import annotations

import json
import os
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chatlanes.bot import Bot
from chatlanes.bot.context import Context
from tests.support import bots


def note(what: str, **values: Any) -> None:
    line = json.dumps({"what": what, "at": time.time(), **values}) + "\n"
    with Path(os.environ[bots.GATES], "timers").open("a") as file:
        file.write(line)


def later(ctx: Context, order: str) -> None:
    """`later:<name>_<ms>` or `later:<name>_<ms>_<order>`: set a timer, whose data is an order."""
    name, ms, *order_then = order.split("_", 2)
    data = {"do": order_then[0].replace("_", ":", 1) if order_then else ""}
    note("set", name=ctx.later(int(ms) / 1000, data, None if name == "unnamed" else name))


def at(ctx: Context, order: str) -> None:
    """As `later`, with a datetime."""
    name, ms = order.split("_")
    note("set", name=ctx.later(datetime.now(UTC) + timedelta(milliseconds=int(ms)), {"do": ""}, name))


def remind(ctx: Context) -> None:
    """The handler of a broadcast."""
    note("set", name=ctx.later(0.1, {"do": "later:last_100"}, "reminder"))


def on(ctx: Context, order: str) -> None:
    """`on:<name>_<seconds since 1970>`: set a timer for this time."""
    name, at_s = order.split("_")
    note("set", name=ctx.later(datetime.fromtimestamp(int(at_s), UTC), {"do": ""}, name))


def show(ctx: Context, _: str) -> None:
    note("shown", names=[timer.name for timer in ctx.timers()], data=[timer.data for timer in ctx.timers()])


ORDERS = {
    **bots.ORDERS,
    "later": later,
    "at": at,
    "on": on,
    "cancel": lambda ctx, name: ctx.cancel(name),
    "show": show,
}


def handle(ctx: Context) -> None:
    note("begin", chat=ctx.chat_id, text=ctx.text)
    execute(ctx, ctx.text)
    note("handled", chat=ctx.chat_id, text=ctx.text)


def on_timer(ctx: Context) -> None:
    timer = ctx.timer
    late_s = round(timer.late_s, 3)
    note("timer", chat=ctx.chat_id, name=timer.name, attempt=ctx.attempt, late_s=late_s, due=timer.due.timestamp())
    execute(ctx, (timer.data or {}).get("do", ""))
    ctx.session["fired"] = [*ctx.session.get("fired", []), timer.name]
    ctx.reply(f"{timer.name} is due")
    note("ran", chat=ctx.chat_id, name=timer.name)


def execute(ctx: Context, text: str) -> None:
    for order, value in re.findall(r"(\w+):(\w+)", text):
        ORDERS[order](ctx, value)


async def handle_async(ctx: Context) -> None:
    note("begin", chat=ctx.chat_id, text=ctx.text)
    for order, value in re.findall(r"(\w+):(\w+)", ctx.text):
        if order == "show":
            note("shown", names=[timer.name for timer in await ctx.timers()])  # type: ignore[misc]
        else:
            ORDERS[order](ctx, value)


async def on_timer_async(ctx: Context) -> None:
    note("timer", chat=ctx.chat_id, name=ctx.timer.name, late_s=round(ctx.timer.late_s, 3))
    execute(ctx, (ctx.timer.data or {}).get("do", ""))
    ctx.session["fired"] = [*ctx.session.get("fired", []), ctx.timer.name]
    await ctx.reply(f"{ctx.timer.name} is due")
    note("ran", chat=ctx.chat_id, name=ctx.timer.name)


bot = Bot(handle, on_timer=on_timer)
coroutines = Bot(handle_async, on_timer=on_timer_async)
without_on_timer = Bot(handle)
