"""Handlers that take long: UPDATE_TIMEOUT in each kind of pool, and a warning of those that keep their lane waiting.

A run either ends normally or is evicted, never both. With prefork, Celery raises in the handler at the soft limit and
kills the child at the hard limit; a greenlet is interrupted here. A thread cannot be interrupted: the soft limit calls
the bot's on_timeout hook, and the hard limit evicts the update. The handler itself keeps running, without effect.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any

from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded
from celery.utils.log import get_task_logger
from greenlet import getcurrent  # type: ignore[import-untyped]
from redis.exceptions import RedisError

import celery_lanes as lanes
from celery_lanes.runtime.threads import Alarms, in_greenlets
from chatlanes.bot.bot import UpdateTimeoutError
from chatlanes.bot.calls.run_calls import Calls
from chatlanes.bot.context import Context
from chatlanes.logs import Ids, about
from chatlanes.logs.errors import own_frames, problem_of, stack_of
from chatlanes.tasks.bots import ServedBot, call_hook
from chatlanes.tasks.settings import HARD_LIMIT_AFTER_S, secrets
from chatlanes.tasks.settlement import decision_for

logger = get_task_logger(__name__)

#: Celery interrupts a greenlet at the hard limit; one that keeps running for this long after that is evicted.
GREENLET_GRACE_S = 1.0
#: A run is slow after this time. Most handlers take less than a second.
SLOW_AFTER_S = 10.0
LOOK_EVERY_S = 2.0
#: The module that calls the handlers.
CALLER = "chatlanes.tasks.update"

ALARMS = Alarms()


class Limits:
    """UPDATE_TIMEOUT of one run in a greenlet or a thread; Celery itself ends one in a process. `report` is called at
    the soft limit of a thread, whose handler keeps running; `evict` at the hard limit.
    """

    def __init__(self, limit_s: float, report: Callable[[], None], evict: Callable[[], None]):
        self.is_reported = False
        self.is_evicted = False
        self._limit_s = limit_s
        self._report = report
        self._evict = evict
        self._thread = None if in_greenlets() else threading.get_ident()  # None: a greenlet, which can be interrupted

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Enforces the limits around the handler. When it exits, `is_reported` and `is_evicted` are final."""
        if self._thread is None:
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
        frame = sys._current_frames().get(self._thread) if self._thread is not None else None
        return stack_of(frame) if frame else ""


def _as_here(function: Callable[[], None]) -> Callable[[], None]:
    """The function bound to the context of the run: on the alarm thread, its logs and traces name this update."""
    return partial(copy_context().run, function)


def _interrupted_after(seconds: float) -> Any:
    from gevent import Timeout  # type: ignore[import-untyped]

    return Timeout(seconds, SoftTimeLimitExceeded(seconds))


def evict(app: Celery, limits: Limits, request: Any, served: ServedBot, ctx: Context, delivery: lanes.Delivery) -> None:
    """Called at the hard limit of a handler that cannot be killed: retries or buries its update. From then on the
    handler's calls and writes are refused.
    """
    error = UpdateTimeoutError(
        "the handler did not end at the hard limit and cannot be killed; it keeps running, without effect"
    )
    problem = problem_of(error, delivery.attempt, secrets())
    problem["traceback"] = limits.where() or problem["traceback"]
    if not take_back(served, delivery, error, problem):
        return
    logger.warning("%s: %s. Its slot stays occupied until it ends.", delivery.id, error)
    call_hook(show_eviction, app, request, problem, decision_for(served, delivery, error))
    call_hook(served.bot.on_error, replace(ctx, api=Calls(served.api)), error)


def take_back(served: ServedBot, delivery: lanes.Delivery, error: Exception, problem: dict[str, Any]) -> bool:
    """Evict the update, to be retried or buried. False if the handler had ended, or if no attempt is counted."""
    if delivery.is_cut_off:  # a Redis outage used up the time; that is not a failure of the handler
        delivery.evict(delay_s=None, problem=None)
        return False
    return delivery.evict(delay_s=decision_for(served, delivery, error), problem=problem)


def show_eviction(app: Celery, request: Any, problem: dict[str, Any], delay_s: float | None) -> None:
    """Send the event to Flower: Celery sends none when the evicted handler ends."""
    kind = "task-failed" if delay_s is None else "task-retried"
    with app.events.default_dispatcher(hostname=request.hostname) as dispatcher:
        dispatcher.send(
            kind,
            uuid=request.id,
            exception=f"UpdateTimeoutError({problem['message']!r})",
            traceback=problem["traceback"],
        )


@dataclass(slots=True)
class _WatchedRun:
    ctx: Context
    since_s: float = field(default_factory=time.monotonic)
    thread: int = field(default_factory=threading.get_ident)
    greenlet: Any = field(default_factory=getcurrent)
    is_reported: bool = False

    def frames(self) -> list[FrameType]:
        """Of the bot's own code, the outermost first."""
        coroutine = self.ctx.__dict__.get("coroutine")
        if coroutine is not None:
            return own_frames(_awaiting(coroutine))
        frame = self.greenlet.gr_frame or sys._current_frames().get(self.thread)
        return own_frames(_called(frame))


class SlowRuns:
    """The runs of one process, which warns once of each place in a bot's code that holds its lane."""

    def __init__(self) -> None:
        self._runs: dict[int, _WatchedRun] = {}
        self._numbers = itertools.count()
        self._reported: set[tuple[str, int]] = set()
        self._pid = 0

    @contextmanager
    def watched(self, ctx: Context) -> Iterator[None]:
        """Wraps a run."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            threading.Thread(target=self._look, name="alarm of slow runs", daemon=True).start()
        number = next(self._numbers)
        self._runs[number] = _WatchedRun(ctx)
        try:
            yield
        finally:
            del self._runs[number]

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_EVERY_S)
            before_s = time.monotonic() - SLOW_AFTER_S
            for run in tuple(self._runs.values()):
                if run.since_s < before_s:
                    self._report(run)

    def _report(self, run: _WatchedRun) -> None:
        ctx, stored, frames = run.ctx, run.ctx.stored, run.frames()
        if not frames or stored is None:
            return
        first, last = frames[0].f_code, frames[-1]
        place = (last.f_code.co_filename, last.f_lineno)
        if run.is_reported or place in self._reported:  # one that waits in a loop is seen at several lines
            return
        try:
            following = stored.following()
        except RedisError:
            return
        if not following:
            return
        run.is_reported = True
        self._reported.add(place)
        with about(lambda: Ids(stored.message_id, ctx.chat_id, ctx.attempt)):
            logger.warning(
                "%s has run for %.0f s and is at %s, line %d, while newer updates of its lane (%d) wait for its end: a "
                "handler cannot wait for a later update of its own chat (docs/migrate/index.md#handlers-that-wait)",
                first.co_qualname,
                time.monotonic() - run.since_s,
                *place,
                following,
            )


def _called(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the handler, the outermost first."""
    frames = []
    while frame is not None and frame.f_globals.get("__name__") != CALLER:
        frames.append(frame)
        frame = frame.f_back
    return reversed(frames)


def _awaiting(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of those that it awaits."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
