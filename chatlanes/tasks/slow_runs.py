"""Warns of a handler that keeps its own lane waiting, such as one that waits for a later update of its chat.

Each place in a bot's code is reported once per process. A thread looks at the runs that take long; the others only
enter and leave a table.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from celery.utils.log import get_task_logger
from greenlet import getcurrent  # type: ignore[import-untyped]
from redis.exceptions import RedisError

from chatlanes.bot.context import Context
from chatlanes.logs import Ids, about
from chatlanes.logs.errors import own_frames

logger = get_task_logger(__name__)

#: A run is slow after this time. Most handlers take less than a second.
SLOW_AFTER_S = 10.0
LOOK_EVERY_S = 2.0
#: The module that calls the handlers.
CALLER = "chatlanes.tasks.update"


@dataclass(slots=True)
class _Run:
    ctx: Context
    since_s: float = field(default_factory=time.monotonic)
    thread: int = field(default_factory=threading.get_ident)
    greenlet: Any = field(default_factory=getcurrent)

    def frames(self) -> list[FrameType]:
        """Of the bot's own code, the outermost first."""
        coroutine = self.ctx.__dict__.get("coroutine")
        if coroutine is not None:
            return own_frames(_awaiting(coroutine))
        frame = self.greenlet.gr_frame or sys._current_frames().get(self.thread)
        return own_frames(_called(frame))


class SlowRuns:
    """The runs of one process."""

    def __init__(self) -> None:
        self._runs: dict[int, _Run] = {}
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
        self._runs[number] = _Run(ctx)
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

    def _report(self, run: _Run) -> None:
        ctx, stored, frames = run.ctx, run.ctx.stored, run.frames()
        if not frames or stored is None:
            return
        first, last = frames[0].f_code, frames[-1]
        place = (last.f_code.co_filename, last.f_lineno)
        if place in self._reported:
            return
        try:
            following = stored.following()
        except RedisError:
            return
        if not following:
            return
        self._reported.add(place)
        with about(lambda: Ids(stored.message_id, ctx.chat_id, ctx.attempt)):
            logger.warning(
                "%s has run for %.0f s and is at %s, line %d, while %d newer updates of its lane wait for its end: a "
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
