"""Calls that their caller can walk away from: another thread makes them, and is kept for the next one.

Promises that a call's end is its caller's, with what it returned or raised. Does not end a call that was left behind:
it goes on, on a daemon thread, until the process is gone.
"""

from collections.abc import Callable
from contextlib import suppress
from math import isinf
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, Thread, current_thread
from typing import Any

from chatlanes.lanes.runtime.outcome import Returned

#: A thread that had nothing to do for so long ends: whoever made it may be gone.
IDLE_S = 10.0


class Call(Returned):
    """`is_over`: it has ended, and `outcome` tells how."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self.is_over = False
        self._function = function
        self._bell = Lock()
        self._bell.acquire()

    def wait(self, seconds: float) -> None:
        """Until the bell was rung, at its end or by somebody else; or until the time is over."""
        self._bell.acquire(timeout=-1 if isinf(seconds) else min(seconds, TIMEOUT_MAX))

    def ring(self) -> None:
        with suppress(RuntimeError):  # it is ringing
            self._bell.release()

    def make(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # every end of the call is the caller's to see
            self._error = error

    def tell(self) -> None:
        self.is_over = True
        self.ring()


class Hands:
    """As many threads as calls were ever under way at once."""

    def __init__(self) -> None:
        self._idle: list[_Hand] = []

    def give(self, call: Call) -> None:
        """Returns at once."""
        try:
            hand = self._idle.pop()
        except IndexError:
            hand = _Hand(self._idle)
        hand.take(call)


class _Hand:
    def __init__(self, idle: list["_Hand"]) -> None:
        self._idle = idle
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def take(self, call: Call) -> None:
        """It has its caller's name, for the log."""
        self._thread.name = current_thread().name
        self._calls.put(call)

    def _serve(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_S)
            except Empty:
                try:
                    self._idle.remove(self)
                except ValueError:  # somebody has just taken it
                    continue
                return
            call.make()
            self._idle.append(self)  # before its end is told: the next call comes at once
            call.tell()
            del call
