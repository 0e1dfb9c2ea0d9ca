"""Runs blocking steps, such as a round trip to Redis, and sleeps. They block the thread unless it registered a Waiter.

A thread that must not block, such as that of an event loop, registers one (worker/loop_jobs.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Waiter(Protocol):
    """Waits without blocking the thread."""

    def run_blocking(self, step: Callable[[], T]) -> T: ...

    def sleep(self, seconds: float) -> None: ...


class _ThisThread(threading.local):
    waiter: Waiter | None = None


_this_thread = _ThisThread()


def register_thread(waiter: Waiter) -> None:
    """From now on the current thread waits through `waiter`."""
    _this_thread.waiter = waiter


def run_blocking(step: Callable[[], T]) -> T:
    """Runs a step that may block, and returns its result."""
    waiter = _this_thread.waiter
    return step() if waiter is None else waiter.run_blocking(step)


def sleep(seconds: float) -> None:
    waiter = _this_thread.waiter
    if waiter is None:
        time.sleep(seconds)
    else:
        waiter.sleep(seconds)
