"""The bot of a chaos run: writes down when it starts and ends each update, and nothing else.

Promises that a line is in the file before the handler goes on, whatever kills it next: one write to a file opened for
appending is whole or not at all.
"""

import json
import os
import time
from functools import cache
from random import random
from typing import Any

from tasks.bot.context import Context
from tasks.routing import keys_of

HISTORY, SLOWEST_S, ORDER = "CHAOS_HISTORY", "CHAOS_SLOWEST_S", "ORDER_BY"


class PoisonError(Exception):
    """What a poison update raises, each time."""


def handle(ctx: Context) -> None:
    record = {"id": ctx.update_id, "keys": keys_of(ctx.update, os.environ[ORDER]), "pid": os.getpid()}
    run = f"{os.getpid()}:{time.monotonic_ns()}"
    _write({**record, "what": "start", "run": run, "attempt": ctx.attempt})
    time.sleep(random() ** 3 * float(os.environ[SLOWEST_S]))  # noqa: S311 - mostly short, now and then long
    if is_poison(ctx.update_id):
        _write({**record, "what": "raise", "run": run})
        raise PoisonError(f"update {ctx.update_id}")
    _write({**record, "what": "end", "run": run})


def is_poison(update_id: int) -> bool:
    """One of 500 fails each time, and must be buried without stopping its chat."""
    return update_id % 500 == 250


def _write(record: dict[str, Any]) -> None:
    line = json.dumps({**record, "at_s": time.monotonic()}) + "\n"
    os.write(_file(os.getpid()), line.encode())


@cache
def _file(_: int) -> int:
    return os.open(os.environ[HISTORY], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
