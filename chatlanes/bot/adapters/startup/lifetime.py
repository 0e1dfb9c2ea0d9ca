"""What a framework does once at the start of a process, and once at its end.

Guarantees that `start` runs once before the first update of this process, and that `stop` runs when Celery ends the
process in order: a child of prefork, or a worker of another pool. A killed process runs no `stop`. A start that fails
costs no update an attempt: it ends the worker, or, where the failure may pass, is tried again with the next update.
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

#: What a shutdown may take before its process ends without it.
STOP_WITHIN_S = 10.0

#: What an update waits for a start; for longer it is put off.
LONGEST_WAIT_S = 5.0

Step = Callable[[], Coroutine[Any, Any, object]]


class Steps(NamedTuple):
    """`passing` are errors of `start` that may pass by themselves."""

    start: Step
    stop: Step
    passing: tuple[type[Exception], ...]


class AsyncLifetime:
    """Of one bot, on this process's event loop. Made in the worker's main process, before it forks."""

    def __init__(self, said: str, steps: Steps) -> None:
        self._said = said
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
        """Before each update. Raises BotStartError, also when it takes longer than an update should wait."""
        starting = await self._begin()
        if starting.done():
            return starting.result()
        left_s = LONGEST_WAIT_S if ctx.deadline_s is None else (ctx.deadline_s - monotonic()) / 2
        await asyncio.wait([starting], timeout=min(left_s, LONGEST_WAIT_S))
        if not starting.done():
            raise BotStartError(f"{self._said} is still starting")
        return starting.result()

    async def _begin(self) -> asyncio.Task[None]:
        if self._pid != os.getpid():
            self._pid, self._starting = os.getpid(), None
        if self._starting is None:
            self._starting = asyncio.create_task(self._started())
            self._starting.add_done_callback(asyncio.Task.exception)  # it is told already
        return self._starting

    async def _started(self) -> None:
        try:
            with handling(None), background.told(f"{self._said}: its start-up"):  # its calls are not the update's
                await self._start()
        except self._passing as error:
            self._starting = None  # the next update tries again
            log.warning("%s cannot start yet, and is tried again: %s: %s", self._said, type(error).__name__, error)
            raise BotStartError(f"{self._said} cannot start yet: {error}") from error
        except Exception as error:
            log.exception("%s: its own start-up failed; mend it. This worker ends, and its updates wait", self._said)
            self._has_failed[0] = 1
            os.kill(self._worker, signal.SIGTERM)
            raise BotStartError(f"{self._said} failed to start: {error}") from error

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
            log.exception("the bot's own shutdown failed")

    async def _stopped(self, starting: asyncio.Task[None]) -> None:
        await asyncio.wait([starting])
        if starting.exception() is None:
            await self._stop()
