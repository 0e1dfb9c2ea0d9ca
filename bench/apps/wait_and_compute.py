"""The handlers compared with grammY: they wait or compute, and then write one byte to a file."""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # aiogram runs wait_async in its own environment
    from chatlanes.bot.context import Context

#: Environment variables: the file; the time to wait or compute; the number of updates at a time.
DONE, WAIT_MS, COMPUTE_MS, CONCURRENCY = "BENCH_DONE", "BENCH_WAIT_MS", "BENCH_COMPUTE_MS", "BENCH_CONCURRENCY"


def wait(_: Context) -> None:
    time.sleep(float(os.environ[WAIT_MS]) / 1000)
    note()


async def wait_async(_: Any) -> None:
    await asyncio.sleep(float(os.environ[WAIT_MS]) / 1000)
    note()


def compute(_: Context) -> None:
    """Computes for this much of the thread's own processor time, independent of the machine's load."""
    end_s = time.thread_time() + float(os.environ[COMPUTE_MS]) / 1000
    while time.thread_time() < end_s:
        sum(range(200))
    note()


def note() -> None:
    os.write(_file(), b".")


@cache
def _file() -> int:
    return os.open(os.environ[DONE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
