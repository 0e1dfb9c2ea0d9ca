"""Enforces UPDATE_TIMEOUT on one run of a handler, in each kind of pool.

A run either ends normally or is evicted, never both. With prefork, Celery raises in the handler at the soft limit and
kills the child at the hard limit; a greenlet is interrupted here. A thread cannot be interrupted: the soft limit calls
the bot's on_timeout hook, and the hard limit evicts the update.
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

from chatlanes.lanes.runtime.alarms import Alarms
from chatlanes.lanes.runtime.os_threads import in_greenlets
from chatlanes.logs.errors import stack_of

#: The time a handler has for cleanup after the soft limit.
HARD_LIMIT_AFTER_S = 10.0
#: Celery interrupts a greenlet at the hard limit; one that keeps running for this long after that is evicted.
GREENLET_GRACE_S = 1.0

ALARMS = Alarms()


class Enforcer(Enum):
    """The component that can end a handler at its limit."""

    CELERY = "its process can be killed"
    GEVENT = "its greenlet can be interrupted"
    NONE = "its thread cannot be interrupted"


def enforcer_here(*, forks: bool) -> Enforcer:
    if forks:
        return Enforcer.CELERY
    return Enforcer.GEVENT if in_greenlets() else Enforcer.NONE


class Unlimited:
    """A run without UPDATE_TIMEOUT. One shared instance, so it costs nothing per update."""

    is_reported = False
    is_evicted = False

    def limited(self) -> AbstractContextManager[None]:
        return _NOTHING


_NOTHING = nullcontext()
UNLIMITED = Unlimited()


class Run:
    """One run. `report` is called at the soft limit of a thread, whose handler keeps running; `evict` at the hard
    limit.
    """

    def __init__(self, limit_s: float, enforcer: Enforcer, report: Callable[[], None], evict: Callable[[], None]):
        self.is_reported = False
        self.is_evicted = False
        self._limit_s = limit_s
        self._enforcer = enforcer
        self._report = report
        self._evict = evict
        self._thread = threading.get_ident()

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Enforces the limits around the handler. When it exits, `is_reported` and `is_evicted` are final."""
        if self._enforcer is Enforcer.CELERY:
            yield
        elif self._enforcer is Enforcer.GEVENT:
            evicting = ALARMS.on(self._limit_s + HARD_LIMIT_AFTER_S + GREENLET_GRACE_S, _as_here(self._evict))
            try:
                with _interrupted_after(self._limit_s):
                    yield
            finally:
                self.is_evicted = not ALARMS.off(evicting)
        else:
            reporting = ALARMS.on(self._limit_s, _as_here(self._report))
            evicting = ALARMS.on(self._limit_s + HARD_LIMIT_AFTER_S, _as_here(self._evict))
            try:
                yield
            finally:
                self.is_reported = not ALARMS.off(reporting)
                self.is_evicted = not ALARMS.off(evicting)

    def where(self) -> str:
        """The handler's current stack. Empty for a greenlet."""
        frame = sys._current_frames().get(self._thread) if self._enforcer is Enforcer.NONE else None
        return stack_of(frame) if frame else ""


def _as_here(function: Callable[[], None]) -> Callable[[], None]:
    """The function bound to the context of the run: on the alarm thread, its logs and traces name this update."""
    return partial(copy_context().run, function)


def _interrupted_after(seconds: float) -> Any:
    from gevent import Timeout  # type: ignore[import-untyped]

    return Timeout(seconds, SoftTimeLimitExceeded(seconds))
