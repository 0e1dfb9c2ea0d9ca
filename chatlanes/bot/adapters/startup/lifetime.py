"""Runs a framework's start-up and shutdown once per process.

`start` runs once before the first update of the process, and `stop` runs when Celery shuts the process down (a prefork
child, or a worker of another pool), but not if it is killed. A failed start counts no attempt: it ends the worker, or,
if the error is temporary, is retried with the next update.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import signal
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, NamedTuple

from celery import signals

from chatlanes.bot.adapters.startup import background
from chatlanes.bot.bot import BotStartError
from chatlanes.bot.context import Context
from chatlanes.bot.current import handling
from chatlanes.bot.event_loop import event_loop

log = logging.getLogger(__name__)

#: The time limit of a shutdown; after that the process ends without it.
STOP_WITHIN_S = 10.0

#: How long an update waits for the start. After that the update is parked.
LONGEST_WAIT_S = 5.0

Step = Callable[[], Coroutine[Any, Any, object]]


class Steps(NamedTuple):
    """A framework's start-up and shutdown. `passing`: temporary errors of `start`."""

    start: Step
    stop: Step
    passing: tuple[type[Exception], ...]


class AsyncLifetime:
    """The lifetime of one bot on this process's event loop. Created in the worker's main process, before it forks."""

    def __init__(self, label: str, steps: Steps) -> None:
        self._label = label
        self._start, self._stop, self._passing = steps
        self._worker = os.getpid()
        self._pid = 0
        self._starting: asyncio.Task[None] | None = None
        self._has_failed = mmap.mmap(-1, 1)  # shared with the children
        signals.worker_process_init.connect(self._begin_child, weak=False)
        signals.worker_ready.connect(self._begin_worker, weak=False)
        signals.worker_process_shutdown.connect(self._end, weak=False)
        signals.worker_shutdown.connect(self._end_worker, weak=False)

    async def begun(self, ctx: Context) -> None:
        """Call before each update. Raises BotStartError if the start fails or takes longer than an update may wait."""
        starting = await self._begin()
        if starting.done():
            return starting.result()
        left_s = LONGEST_WAIT_S if ctx.deadline_s is None else (ctx.deadline_s - monotonic()) / 2
        await asyncio.wait([starting], timeout=min(left_s, LONGEST_WAIT_S))
        if not starting.done():
            raise BotStartError(f"{self._label} is still starting")
        return starting.result()

    async def _begin(self) -> asyncio.Task[None]:
        if self._pid != os.getpid():
            self._pid, self._starting = os.getpid(), None
        if self._starting is None:
            self._starting = asyncio.create_task(self._started())
            self._starting.add_done_callback(
                asyncio.Task.exception
            )  # marks the error as retrieved; it is logged already
        return self._starting

    async def _started(self) -> None:
        try:
            # Without a current update, so that its calls do not belong to the update that waits for it.
            with handling(None), background.watched(f"{self._label}: its start-up"):
                await self._start()
        except self._passing as error:
            self._starting = None  # the next update tries again
            log.warning("%s cannot start yet; will retry: %s: %s", self._label, type(error).__name__, error)
            raise BotStartError(f"{self._label} cannot start yet: {error}") from error
        except Exception as error:
            log.exception("%s: its start-up failed; fix it. This worker stops, and its updates wait", self._label)
            self._has_failed[0] = 1
            os.kill(self._worker, signal.SIGTERM)
            raise BotStartError(f"{self._label} failed to start: {error}") from error

    def _begin_child(self, **_: Any) -> None:
        event_loop().begin(self._begin())

    def _begin_worker(self, sender: Any, **_: Any) -> None:
        if not sender.pool.uses_semaphore:  # prefork's children handle the updates
            event_loop().begin(self._begin())

    def _end_worker(self, sender: Any, **_: Any) -> None:
        self._end()
        if self._has_failed[0]:
            sender.exitcode = 1

    def _end(self, **_: Any) -> None:
        if self._pid != os.getpid() or self._starting is None:
            return
        starting, self._starting = self._starting, None
        try:
            event_loop().run(self._stopped(starting), STOP_WITHIN_S)
        except Exception:
            log.exception("the bot's shutdown failed")

    async def _stopped(self, starting: asyncio.Task[None]) -> None:
        await asyncio.wait([starting])
        if starting.exception() is None:
            await self._stop()
