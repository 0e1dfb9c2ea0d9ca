"""A bot that sends three messages and makes a payment per update. A test can hold it at a step of the second one.

It wraps functions of chatlanes in the worker's process; in the first run of an update they wait before or after the
step. A text consists of `#<n>` and orders: `held:<step>`, `uncertain:<policy>` (of the second call only),
`swallows:yes` (the bot suppresses every error), and `fails:<attempt>` (after the second message, up to this attempt,
until the gate `fixed` is open).
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

from chatlanes.bot.calls.journal import CallJournal
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context
from chatlanes.telegram.client import BotApi
from tests.support.bots import GATES, record

_local = threading.local()


def handle(ctx: Context) -> None:
    orders = dict(re.findall(r"(\w+):(\w+)", ctx.text))
    name = ctx.text.rpartition(" ")[2]
    record("start", ctx)
    fence_run(ctx)
    say(ctx, f"one {name}")
    _local.held = (ctx, orders.get("held")) if ctx.attempt == 1 else None
    with suppress(Exception if "swallows" in orders else ()):
        say(ctx, f"two {name}", uncertain=orders.get("uncertain"))
    if ctx.attempt <= int(orders.get("fails", 0)) and not is_open("fixed"):
        raise RuntimeError(f"attempt {ctx.attempt}")
    pay(ctx)
    wait_if_held_at("before_ack")
    _local.held = None
    with suppress(Exception if "swallows" in orders else ()):
        say(ctx, f"three {name}")
    record("end", ctx)


def fence_run(ctx: Context) -> None:
    """Fence the bot's own database, as in docs/calls.md. Raises LookupError if a newer run of the update is active."""
    with database() as db:
        newest = db.execute(
            "INSERT INTO runs (update_id, fence) VALUES (?, ?) ON CONFLICT (update_id) "
            "DO UPDATE SET fence = excluded.fence WHERE runs.fence <= excluded.fence",
            (ctx.update_id, ctx.fence),
        )
        if not newest.rowcount:
            raise LookupError(f"a newer run of {ctx.update_id} is active")


def pay(ctx: Context) -> None:
    """Pay once for each update."""
    with database() as db:
        new = db.execute("INSERT INTO handled (update_id) VALUES (?) ON CONFLICT DO NOTHING", (ctx.update_id,))
        if new.rowcount:
            db.execute("UPDATE accounts SET balance = balance - 5")


@contextmanager
def database(folder: str = "") -> Iterator[sqlite3.Connection]:
    """A transaction."""
    file = Path(folder or os.environ[GATES], "shop.sqlite")
    with closing(sqlite3.connect(file, timeout=60)) as connection, connection:
        yield connection


def open_shop(folder: Path) -> None:
    with database(str(folder)) as db:
        db.execute("CREATE TABLE runs (update_id INTEGER PRIMARY KEY, fence INTEGER)")
        db.execute("CREATE TABLE handled (update_id INTEGER PRIMARY KEY)")
        db.execute("CREATE TABLE accounts (balance INTEGER)")
        db.execute("INSERT INTO accounts VALUES (100)")


def say(ctx: Context, text: str, **more: Any) -> None:
    ctx.call("sendMessage", chat_id=ctx.chat_id, text=text, **more)


def wait_if_held_at(step: str) -> None:
    ctx, at = getattr(_local, "held", None) or (None, None)
    if ctx and at == step:  # before_begin, after_begin, after_send, after_record or before_ack
        record(f"at-{step}", ctx)
        while not is_open("go"):
            time.sleep(0.005)


def is_open(gate: str) -> bool:
    return Path(os.environ[GATES], gate).exists()


def hold_at_step(owner: type, name: str, before: str = "", after: str = "") -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        wait_if_held_at(before)
        result = original(*args, **kwargs)
        wait_if_held_at(after)
        return result

    setattr(owner, name, wrapper)


hold_at_step(CallJournal, "begin", before="before_begin", after="after_begin")
hold_at_step(BotApi, "send", after="after_send")
hold_at_step(Calls, "call", after="after_record")
