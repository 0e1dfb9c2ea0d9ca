"""Blocking steps, such as a round trip to Redis, and sleeps: done in place, unless this thread has another way.

A thread that must not block, such as an event loop's, registers how it waits instead (worker/loop_jobs.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Waiter(Protocol):
    """Another way to wait."""

    def run_blocking(self, step: Callable[[], T]) -> T: ...

    def sleep(self, seconds: float) -> None: ...


class _ThisThread(threading.local):
    waiter: Waiter | None = None


_this_thread = _ThisThread()


def register_thread(waiter: Waiter) -> None:
    """From now on the current thread waits this way."""
    _this_thread.waiter = waiter


def run_blocking(step: Callable[[], T]) -> T:
    """The result of a step that may block."""
    waiter = _this_thread.waiter
    return step() if waiter is None else waiter.run_blocking(step)


def sleep(seconds: float) -> None:
    waiter = _this_thread.waiter
    if waiter is None:
        time.sleep(seconds)
    else:
        waiter.sleep(seconds)
