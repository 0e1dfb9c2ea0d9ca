"""OS threads and locks, also if gevent has replaced those of `threading`.

Leases must be renewed while greenlets compute, which needs an OS thread. Code that holds a lock of this module must not
switch greenlets.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from typing import Any


def _original(name: str) -> Any:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original("_thread", name)
    return getattr(_thread, name)


def in_greenlets() -> bool:
    """True if gevent has replaced threads by greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def is_main_thread() -> bool:
    """True on the thread that handles signals. All greenlets are on it."""
    return in_greenlets() or threading.current_thread() is threading.main_thread()


def lock() -> Any:
    return _original("allocate_lock")()


def start_thread(target: Callable[[], None]) -> None:
    _original("start_new_thread")(target, ())


class Signal:
    """An event that wakes one waiting thread, and resets itself."""

    def __init__(self) -> None:
        self._lock = lock()
        self._lock.acquire()

    def set(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:  # already set
            return

    def wait(self, timeout_s: float) -> bool:
        return bool(self._lock.acquire(timeout=max(timeout_s, 0)))
