"""UPDATE_TIMEOUT around one run of a handler: what each kind of pool can do about one that takes too long.

Promises that a run either ends here or is evicted, never both. Under prefork Celery does everything: its soft limit
raises in the handler, its hard one kills the child. A greenlet is interrupted by us; nothing can interrupt a thread: at
the soft limit it is told of, at the hard one its update is taken away from it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from enum import Enum
from functools import partial
from typing import Any

from celery.exceptions import SoftTimeLimitExceeded

from chatlanes.lanes.runtime.os_threads import in_greenlets
from chatlanes.lanes.runtime.timers import Alarms
from chatlanes.logs.errors import stack_of

#: What a handler has, after the soft limit, to tidy up in.
HARD_LIMIT_AFTER_S = 10.0
#: Celery interrupts a greenlet at the hard limit; only one that does not listen to that either is evicted.
GREENLET_GRACE_S = 1.0

ALARMS = Alarms()


class Means(Enum):
    """Who can end a handler."""

    CELERY = "its process can be killed"
    GEVENT = "its greenlet can be interrupted"
    NOBODY = "its thread can only be told, and left alone"


def means_here(*, forks: bool) -> Means:
    if forks:
        return Means.CELERY
    return Means.GEVENT if in_greenlets() else Means.NOBODY


class Unlimited:
    """A run without UPDATE_TIMEOUT: what each update has when there is none, so it costs nothing."""

    is_told = False
    is_evicted = False

    def limited(self) -> AbstractContextManager[None]:
        return _NOTHING


_NOTHING = nullcontext()
UNLIMITED = Unlimited()


class Run:
    """One run. `tell` is called at the soft limit, while the handler goes on; `evict` at the hard one."""

    def __init__(self, limit_s: float, means: Means, tell: Callable[[], None], evict: Callable[[], None]):
        self.is_told = False
        self.is_evicted = False
        self._limit_s = limit_s
        self._means = means
        self._tell = tell
        self._evict = evict
        self._thread = threading.get_ident()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Around the handler. Afterwards `is_told` and `is_evicted` are final."""
        if self._means is Means.CELERY:
            yield
        elif self._means is Means.GEVENT:
            evicting = ALARMS.on(self._limit_s + HARD_LIMIT_AFTER_S + GREENLET_GRACE_S, _as_here(self._evict))
            try:
                with _interrupted_after(self._limit_s):
                    yield
            finally:
                self.is_evicted = not ALARMS.off(evicting)
        else:
            telling = ALARMS.on(self._limit_s, _as_here(self._tell))
            evicting = ALARMS.on(self._limit_s + HARD_LIMIT_AFTER_S, _as_here(self._evict))
            try:
                yield
            finally:
                self.is_told = not ALARMS.off(telling)
                self.is_evicted = not ALARMS.off(evicting)

    def where(self) -> str:
        """What the handler is doing now. Empty for a greenlet."""
        frame = sys._current_frames().get(self._thread) if self._means is Means.NOBODY else None
        return stack_of(frame) if frame else ""


def _as_here(function: Callable[[], None]) -> Callable[[], None]:
    """On the thread of the alarms, with the context of the run: its logs and its traces are about this update."""
    return partial(copy_context().run, function)


def _interrupted_after(seconds: float) -> Any:
    from gevent import Timeout  # type: ignore[import-untyped]

    return Timeout(seconds, SoftTimeLimitExceeded(seconds))
