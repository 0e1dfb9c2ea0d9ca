"""The timers of a chaos run: every update sets some, each due at a time of its own."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from celery import current_task

from chatlanes import Context

#: How many timers each update sets; and the longest time until one is due.
EACH, LONGEST_S = "CHAOS_TIMERS", "CHAOS_TIMERS_LONGEST_S"
#: The file of their history, beside that of the updates.
FILE = "timers.jsonl"
#: Begins the text of their messages.
TEXT = "timer "


def names(update: int, each: int) -> list[str]:
    return [f"{update}.{number}" for number in range(each)]


def set_timers(ctx: Context, update: int) -> None:
    for name, after_s in _planned(update):
        ctx.later(after_s, {"from_s": time.time() + after_s}, name)


def on_timer(ctx: Context) -> None:
    """Records its begin and end, and sends one message."""
    timer = ctx.timer
    known = {"name": timer.name, "id": current_task.request.id, "due_s": timer.due.timestamp(), **timer.data}
    _write("begin", **known)
    ctx.reply(TEXT + timer.name)
    _write("end", **known)


def _planned(update: int) -> Iterator[tuple[str, float]]:
    """Each name, and the seconds until it is due: the same in each run of the update."""
    chance = random.Random(update)  # noqa: S311 - reproducible, not secret
    for name in names(update, int(os.environ.get(EACH, "0"))):
        yield name, chance.random() * float(os.environ[LONGEST_S])


def _write(what: str, **more: Any) -> None:
    line = json.dumps({"what": what, "at_s": time.time(), **more}) + "\n"
    file = os.open(Path(os.environ["CHAOS_HISTORY"]).with_name(FILE), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
