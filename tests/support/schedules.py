"""Schedules of a bot of these tests: each firing appends lines to the file `firings`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from chatlanes import Schedule
from chatlanes.bot.context import Context
from tests.support.bots import GATES, WORKER


class Firing(NamedTuple):
    what: str
    worker: str
    schedule: str
    due_ms: int
    late_s: float
    number: int  # of the firings that the session has counted
    at_s: float


def firings(folder: Path) -> list[Firing]:
    try:
        whole, _, _ = (folder / "firings").read_text().rpartition("\n")  # the last line may be incomplete
    except FileNotFoundError:
        return []
    split = (line.split() for line in whole.splitlines())
    return [
        Firing(what, by, name, int(due), float(late), int(n), float(at)) for what, by, name, due, late, n, at in split
    ]


def record(ctx: Any) -> None:
    _write("start", ctx)
    ctx.session["firings"] = ctx.session.get("firings", 0) + 1
    _write("end", ctx)


async def record_async(ctx: Any) -> None:
    record(ctx)


def wait(ctx: Context) -> None:
    """Runs until the test opens the gate `wait`, whatever is due meanwhile."""
    _write("start", ctx)
    while not Path(os.environ[GATES], "wait").exists():
        time.sleep(0.005)
    _write("end", ctx)


def send(ctx: Context) -> None:
    """Sends its time to chat 7, and fails the first time."""
    assert ctx.schedule is not None
    assert (ctx.chat_id, ctx.user_id, ctx.kind) == (None, None, "schedule")
    ctx.call("sendMessage", chat_id=7, text=f"it is {ctx.schedule.due:%H:%M}")
    if ctx.attempt == 1:
        raise RuntimeError("the first attempt fails")
    _write("end", ctx)


def _write(what: str, ctx: Any) -> None:
    name, due, late_s = ctx.schedule
    number = ctx.session.get("firings", 0)
    line = f"{what} {os.environ[WORKER]} {name} {round(due.timestamp() * 1000)} {late_s} {number} {time.time()}\n"
    descriptor = os.open(Path(os.environ[GATES], "firings"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


every_second = [Schedule("tick", "* * * * * *", record, missed="all")]
every_second_async = [Schedule("tick", "* * * * * *", record_async, missed="all")]
daily = [Schedule("digest", "0 9 * * *", record, "Europe/Berlin")]
earlier = [Schedule("digest", "0 8 * * *", record, "Europe/Berlin")]
daily_all = [Schedule("digest", "0 9 * * *", record, "Europe/Berlin", missed="all")]
daily_skip = [Schedule("digest", "0 9 * * *", record, "Europe/Berlin", missed="skip")]
slow = [Schedule("slow", "* * * * * *", wait)]
failing = [Schedule("failing", "0 9 * * *", send)]
wrong = [Schedule("digest", "0 25 * * *", record)]
not_a_list = daily[0]
