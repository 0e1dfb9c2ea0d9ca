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
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, NamedTuple

from celery import signals

from chatlanes.bot.bot import BotStartError
from chatlanes.bot.context import Context, handling
from chatlanes.bot.event_loop import event_loop

log = logging.getLogger(__name__)

#: The time limit of a shutdown; after that the process ends without it.
STOP_WITHIN_S = 10.0

#: How long an update waits for the start. After that the update is parked.
LONGEST_WAIT_S = 5.0

#: Our own threads and coroutines, by the beginning of their names.
_OUR_THREADS = ("alarm", "asyncio_", "blocking call", "bot", "event loop", "ThreadPoolExecutor")
_OUR_TASKS = ("Awaited.", "AsyncLifetime.", "AsyncMain.")

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
            # Marks the error as retrieved; it is logged already.
            self._starting.add_done_callback(asyncio.Task.exception)
        return self._starting

    async def _started(self) -> None:
        try:
            # Without a current update, so that its calls do not belong to the update that waits for it.
            with handling(None), watched(f"{self._label}: its start-up"):
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


@contextmanager
def watched(step: str) -> Iterator[None]:
    """Wraps an import or a start-up; warns of threads and tasks that it started and that still run, because each worker
    process would have its own. They are not changed.
    """
    threads, tasks = set(threading.enumerate()), _tasks()
    yield
    _log(step, "thread", [each.name for each in set(threading.enumerate()) - threads], _OUR_THREADS)
    coroutines = (each.get_coro() for each in _tasks() - tasks)
    _log(step, "task", [getattr(each, "__qualname__", str(each)) for each in coroutines], _OUR_TASKS)


def _tasks() -> set[asyncio.Task[Any]]:
    """The tasks of the running event loop; empty without one."""
    try:
        return asyncio.all_tasks()
    except RuntimeError:
        return set()


def _log(step: str, what: str, names: list[str], ours: tuple[str, ...]) -> None:
    found = sorted(name for name in names if not name.startswith(ours))
    if found:
        log.warning(
            "%s started %d %s%s (%s): every worker process would have its own, and those started by an import do not "
            "run in the children of -P prefork. Run background work once, in a separate program",
            step,
            len(found),
            what,
            "s" * (len(found) > 1),
            ", ".join(found),
        )
