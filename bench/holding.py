"""The handler of the recovery row: writes down who started whom and when, and, where it is told to, never ends.

The file is named by the environment variable BENCH_STARTS; each line is one start: update, process, seconds of the
monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from typing import Any

from bench.slow_chat import STARTS

#: Environment: whether it never ends; how long, in seconds, a dead worker keeps what it held.
HOLDS, PATIENCE = "BENCH_HOLDS", "BENCH_PATIENCE_S"
FOR_EVER_S = 86_400


def handle(update: dict[str, Any]) -> None:
    line = f"{update['update_id']} {os.getpid()} {time.monotonic():.6f}\n"
    with open(os.environ[STARTS], "a", buffering=1) as starts:
        starts.write(line)
    if HOLDS in os.environ:
        time.sleep(FOR_EVER_S)
