"""A bot whose handler runs until it is interrupted, and records each start as a line: the monotonic clock in s."""

from __future__ import annotations

import os
import time

from chatlanes.bot.context import Context

STARTS = "BENCH_STARTS"


def handle(ctx: Context) -> None:
    file = os.open(os.environ[STARTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, f"{time.monotonic():.6f}\n".encode())
    os.close(file)
    while len(ctx.updates) == 1 and not ctx.interrupted:
        time.sleep(0.001)
