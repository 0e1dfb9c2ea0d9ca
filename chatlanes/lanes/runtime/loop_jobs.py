"""Jobs on the thread of an event loop, for those that wait in coroutines only: a thread for each would only sleep.

Promises that a job written as ordinary code waits there without holding up the loop: for a future, for a moment, or for
what blocks, which is done on another thread. Each has a greenlet for itself while it lasts, and with it stacks of
Celery and context variables. Whoever waits holds no lock: the next job of that thread would wait for it for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol, TypeVar, cast

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from chatlanes.lanes.runtime.executor import Hands

T = TypeVar("T")


class Loop(Protocol):
    """What runs jobs on the thread of an event loop."""

    def begin_job(self, job: Callable[[], object], *, is_last: bool = True) -> None:
        """Soon; any thread may say it. Nothing may be raised by it. Unless it is the last of several, it may wait for
        that.
        """

    def begin_jobs(self) -> None:
        """There was no other."""


class Errands:
    """Those of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        #: Not those that make the Bot API's calls: these may all be under way for long, and Redis be asked meanwhile.
        self.hands = Hands(loop)
        self._to_begin: deque[Callable[[], object]] = deque()
        self._is_woken = False
        #: Without a job, to be used again: the memory that each runs in is asked of the system.
        self._idle: list[Errand] = []

    def begin(self, job: Callable[[], object], *, is_last: bool = True) -> None:
        self._to_begin.append(job)
        if is_last:
            self.begin_all()

    def begin_all(self) -> None:
        if self._is_woken:  # one wake-up serves all that come before it
            return
        self._is_woken = True
        here = getcurrent()
        if isinstance(here, Errand) and here.errands is self:  # the loop is awake
            self.loop.call_soon(self._begin_all)
        else:
            self.loop.call_soon_threadsafe(self._begin_all)

    def _begin_all(self) -> None:
        # Before it looks: what is put there from now on wakes the loop again.
        self._is_woken = False
        try:
            for _ in range(len(self._to_begin)):
                errand = self._idle.pop() if self._idle else Errand(self)
                errand.switch(self._to_begin.popleft())
        finally:
            if self._to_begin:  # one that broke takes no other along
                self.begin_all()

    def ended(self, errand: Errand) -> None:
        self._idle.append(errand)


class Errand(greenlet):
    """One job, and then the next. It is switched to by the loop only, and waits by switching back."""

    def __init__(self, errands: Errands) -> None:
        super().__init__(self._work)
        self.errands = errands
        self._awaited: asyncio.Future[Any] | None = None

    def _work(self, job: Callable[[], object]) -> None:
        while True:
            Context().run(job)
            del job
            self.errands.ended(self)
            job = self.parent.switch()

    def wait(self, future: asyncio.Future[Any], within_s: float | None = None) -> bool:
        """Whether it has ended by then."""
        if future.done():
            return True
        self._awaited = future
        timer = None if within_s is None else self.errands.loop.call_later(max(0.0, within_s), self._go_on, future)
        future.add_done_callback(self._go_on)
        self.parent.switch()
        if timer is not None:
            timer.cancel()
        if not future.done():
            future.remove_done_callback(self._go_on)
        return future.done()

    def apart(self, step: Callable[[], T]) -> T:
        future = self.errands.hands.call(step)
        self.wait(future)
        return cast(T, future.result())

    def _go_on(self, future: asyncio.Future[Any]) -> None:
        # Its end and the end of the time may have come in the same round of the loop.
        if self._awaited is future:
            self._awaited = None
            self.switch()


def apart(step: Callable[[], T]) -> T:
    """What a step gives that may block: on another thread where this one is an event loop's."""
    here = getcurrent()
    return here.apart(step) if isinstance(here, Errand) else step()


def pause(seconds: float) -> None:
    """As time.sleep."""
    here = getcurrent()
    if isinstance(here, Errand):
        here.wait(here.errands.loop.create_future(), seconds)
    else:
        time.sleep(seconds)
