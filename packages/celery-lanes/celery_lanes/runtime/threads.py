"""OS threads and locks, even if gevent has replaced those of `threading`; blocking steps; alarms.

Leases must be renewed while greenlets compute, which needs an OS thread. Code that holds a lock of this module must not
switch greenlets. Steps that block, such as a round trip to Redis, and sleeps block the thread unless it registered a
Waiter.
"""

from __future__ import annotations

import _thread
import itertools
import sys
import threading
import time
from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

#: The wait of a condition must be finite.
LONGEST_PAUSE_S = 3600.0


def _original(name: str) -> Any:
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None:
        return monkey.get_original("_thread", name)
    return getattr(_thread, name)


def in_greenlets() -> bool:
    """True if gevent has replaced threads by greenlets."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


def is_greenlet_exit(error: BaseException) -> bool:
    """True if the error ends a killed greenlet."""
    greenlet = sys.modules.get("greenlet")
    return greenlet is not None and isinstance(error, greenlet.GreenletExit)


def is_timeout(error: BaseException, seconds: float) -> bool:
    """True if the error ends a greenlet after this time."""
    gevent = sys.modules.get("gevent")
    return gevent is not None and type(error) is gevent.Timeout and getattr(error, "seconds", None) == seconds


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


class Waiter(Protocol):
    """Waits without blocking the thread, for one that must not block, such as that of an event loop."""

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


class Alarms:
    """Actions that run after a delay unless they are cancelled. For a process that does not fork.

    Guarantees that an alarm which is cancelled in time never runs, and that `off` returns True then. Each action runs
    in its own thread, so no action waits for another; under gevent it is a greenlet, which waits while others compute.
    The thread that starts them begins with the first alarm.
    """

    def __init__(self) -> None:
        self._set: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._wakes_at_s = 0.0
        self._thread: threading.Thread | None = None

    def on(self, after_s: float, action: Callable[[], None]) -> int:
        """Run `action` after this many seconds; returns the number for `off`."""
        at_s, number = monotonic() + after_s, next(self._numbers)
        with self._changed:
            self._set[number] = (at_s, action)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="alarms", daemon=True)
                self._thread.start()
            elif at_s < self._wakes_at_s:
                self._changed.notify()
        return number

    def off(self, number: int) -> bool:
        """Cancels an alarm. Returns False if it was due already."""
        with self._changed:
            return self._set.pop(number, None) is not None

    def _run(self) -> None:
        while True:
            with self._changed:
                for action in self._take_due():
                    threading.Thread(target=action, name="alarm", daemon=True).start()
                self._wakes_at_s = min((at_s for at_s, _ in self._set.values()), default=float("inf"))
                pause_s = self._wakes_at_s - monotonic()
                self._changed.wait(min(max(pause_s, 0.0), LONGEST_PAUSE_S))

    def _take_due(self) -> list[Callable[[], None]]:
        now_s = monotonic()
        due = [number for number, (at_s, _) in self._set.items() if at_s <= now_s]
        return [self._set.pop(number)[1] for number in due]


class Returned:
    """The outcome of a call that ran on another thread: its result, or the error that it raised, which is not kept.

    A subclass waits, and sets `_result` or `_error`.
    """

    def __init__(self) -> None:
        self._result: Any = None
        self._error: BaseException | None = None

    def outcome(self) -> Any:
        """The result; raises the error."""
        try:
            if self._error is not None:
                raise self._error
            return self._result
        finally:
            self._error = None  # its traceback refers to this object
