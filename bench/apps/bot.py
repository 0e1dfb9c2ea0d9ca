"""Bots of the benchmark. The latency bot records, for each update, the time from Telegram's answer to the handler's
start.

The environment variable BENCH_STARTS names the file; each line is one start, in milliseconds. Each line is one append,
so lines of several processes do not mix.
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
    """Measures only the cost of delivery."""


def count(ctx: Context) -> None:
    ctx.session["n"] = ctx.session.get("n", 0) + 1


def record(update: dict[str, Any]) -> None:
    """All processes of a machine read the same monotonic clock."""
    waited_s = time.monotonic() - float(update["answered_at"])
    os.write(_file(), f"{waited_s * 1000:.3f}\n".encode())


@cache
def _file() -> int:
    return os.open(os.environ[STARTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
