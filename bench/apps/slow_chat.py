"""The handler of the slow-chat row: records the chat and the waiting time of each start, and is slow in one chat.

The environment variable BENCH_STARTS names the file; each line is one start: chat, milliseconds. Each line is one
append, so lines of several processes do not mix.
"""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

STARTS = "BENCH_STARTS"
SLOW_CHAT, SLOW_S = 9_999, 1.0


def handle(update: dict[str, Any]) -> None:
    """All processes of a machine read the same monotonic clock."""
    waited_ms = (time.monotonic() - float(update["answered_at"])) * 1000
    chat = int(update["message"]["chat"]["id"])
    os.write(_file(), f"{chat} {waited_ms:.3f}\n".encode())
    if chat == SLOW_CHAT:
        time.sleep(SLOW_S)


@cache
def _file() -> int:
    return os.open(os.environ[STARTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
