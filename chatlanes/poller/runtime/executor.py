"""Runs calls on daemon threads, so that the caller can stop waiting for a call. Threads are reused.

Guarantees that a waiting caller gets the outcome of the call, a result or any exception. Does not end a call for which
the caller no longer waits: it continues until the process exits.
"""

from collections.abc import Callable
from contextlib import suppress
from math import isinf
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Lock, Thread, current_thread
from typing import Any

from chatlanes.lanes.runtime.outcome import Returned

#: An idle thread ends after this time.
IDLE_S = 10.0


class DetachableCall(Returned):
    """`is_over`: the call has ended; then `outcome` returns its result or raises its error."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__()
        self.is_over = False
        self._function = function
        self._wakeup = Lock()
        self._wakeup.acquire()

    def wait(self, seconds: float) -> None:
        """Waits until the call ends, `wake` is called, or the time is over."""
        self._wakeup.acquire(timeout=-1 if isinf(seconds) else min(seconds, TIMEOUT_MAX))

    def wake(self) -> None:
        with suppress(RuntimeError):  # `wake` was called already
            self._wakeup.release()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # the caller gets every outcome
            self._error = error

    def finish(self) -> None:
        self.is_over = True
        self.wake()


class DetachingExecutor:
    """Starts a thread if none is idle."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    def submit(self, call: DetachableCall) -> None:
        """Starts the call and returns at once."""
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self._idle)
        worker.take(call)


class _Worker:
    def __init__(self, idle: list["_Worker"]) -> None:
        self._idle = idle
        self._calls: SimpleQueue[DetachableCall] = SimpleQueue()
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def take(self, call: DetachableCall) -> None:
        """Runs the call. The thread gets the name of the calling thread, which the log contains."""
        self._thread.name = current_thread().name
        self._calls.put(call)

    def _serve(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_S)
            except Empty:
                try:
                    self._idle.remove(self)
                except ValueError:  # `submit` has just taken this worker
                    continue
                return
            call.run()
            self._idle.append(self)  # before the call finishes, because the next call may start at once
            call.finish()
            del call
