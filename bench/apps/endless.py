"""The handler of the recovery and countdown rows: records which process starts which update and when;
if configured, it never ends.

The environment variable BENCH_STARTS names the file; each line is one start: update, process, seconds of the
monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from typing import Any

from bench.apps.slow_chat import STARTS

#: Environment variables: set if the handler must never end; how long, in seconds, a dead worker keeps its messages; how
#: often kombu looks for such messages, instead of every 100 s.
HOLDS, RELEASE_AFTER, CHECK_EVERY = "BENCH_HOLDS", "BENCH_RELEASE_AFTER_S", "BENCH_CHECK_EVERY_S"
HOLD_S = 86_400


def handle(update: dict[str, Any]) -> None:
    line = f"{update['update_id']} {os.getpid()} {time.monotonic():.6f}\n"
    with open(os.environ[STARTS], "a", buffering=1) as starts:
        starts.write(line)
    if HOLDS in os.environ:
        time.sleep(HOLD_S)
