"""The bots of two rows. That of latency writes down how long after it was given out each update starts its handler.

The file is named by the environment variable BENCH_STARTS; each line is one start, milliseconds. A line is one write
to the end of the file, so lines of several processes do not mix.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

from chatlanes.bot.context import Context

STARTS = "BENCH_STARTS"


def handle(ctx: Context) -> None:
    record(ctx.update)


def do_nothing(_: Context) -> None:
    """What is left is the cost of getting it here."""


def count(ctx: Context) -> None:
    ctx.session["n"] = ctx.session.get("n", 0) + 1


def record(update: dict[str, Any]) -> None:
    """All processes of a machine read the same monotonic clock."""
    waited_s = time.monotonic() - float(update["answered_at"])
    os.write(_file(), f"{waited_s * 1000:.3f}\n".encode())


@cache
def _file() -> int:
    return os.open(os.environ[STARTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
