"""`async def` handlers: their context, whose calls are awaitable, their runs as plain functions, and the start-up and
shutdown of their framework.

A call begins as soon as the method is called, keeps its place in the journal, and ends before its update is settled,
even if it is not awaited; its error then fails the handler. A call made after the handler ended is made outside the
update (run_calls.py). The first read of a session blocks the event loop; later runs read it before the handler begins.

A framework's start-up runs once before the first update of a process, and its shutdown when Celery shuts the process
down (a prefork child, or a worker of another pool), but not if it is killed. A failed start counts no attempt: it ends
the worker, or, if the error is temporary, is retried with the next update.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial, update_wrapper
from time import monotonic
from typing import Any, NamedTuple

from celery import signals
from redis.exceptions import RedisError

from celery_lanes.errors import Interrupted, LeaseLost
from chatlanes.bot.bot import BotStartError, UpdateTimeoutError
from chatlanes.bot.calls.run_calls import Calls, Lifecycle, Phase
from chatlanes.bot.context import Context, handling
from chatlanes.bot.event_loop import OverdueError, blocking_executor, event_loop, is_async
from chatlanes.bot.session import SessionError
from chatlanes.bot.shorthands import Shorthands
from chatlanes.bot.timers import Timer

log = logging.getLogger(__name__)

#: The time limit of a shutdown; after that the process ends without it.
STOP_WITHIN_S = 10.0

#: How long an update waits for the start. After that the update is parked.
LONGEST_WAIT_S = 5.0

#: Our own threads and coroutines, by the beginning of their names.
_OUR_THREADS = ("alarm", "asyncio_", "blocking call", "bot", "event loop", "ThreadPoolExecutor")
_OUR_TASKS = ("Awaited.", "AsyncLifetime.", "AsyncMain.")

Step = Callable[[], Coroutine[Any, Any, object]]

#: The methods that call the Bot API.
_CALLS = frozenset({"download", *(name for name in dir(Shorthands) if not name.startswith("_"))})


class PendingCall:
    """A call in flight. Awaiting it returns its result."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future
        self.is_awaited = False

    def __await__(self) -> Generator[Any, None, Any]:
        self.is_awaited = True
        return self.future.__await__()


class AsyncContext(Context):
    """A view of a context, which shares all of its attributes."""

    __slots__ = ("_begun", "life")
    _begun: list[PendingCall]
    life: Lifecycle

    @classmethod
    def of(cls, ctx: Context) -> AsyncContext:
        view = cls.__new__(cls)
        object.__setattr__(view, "__dict__", ctx.__dict__)
        object.__setattr__(view, "_begun", [])
        object.__setattr__(view, "life", ctx.api.life if isinstance(ctx.api, Calls) else Lifecycle())
        return view

    def __getattribute__(self, name: str) -> Any:
        return partial(self._begin, name) if name in _CALLS else super().__getattribute__(name)

    def _begin(self, name: str, *arguments: Any, **params: Any) -> Awaitable[Any]:
        method = {"call": arguments[0] if arguments else "", "download": "getFile"}.get(name, name)
        api = self.api.reserved(method) if isinstance(self.api, Calls) else self.api
        call = partial(getattr(Context(self.update, api), name), *arguments, **params)
        begun = PendingCall(blocking_executor().call(call))
        return self._joined(begun) if self.life.is_open else begun

    def broadcast(self, *arguments: Any, **params: Any) -> Any:
        """Like Context.broadcast, but awaitable."""
        return self._joined(PendingCall(blocking_executor().call(partial(super().broadcast, *arguments, **params))))

    def timers(self) -> Awaitable[list[Timer]]:  # type: ignore[override]
        return blocking_executor().call(super().timers)

    def _joined(self, begun: PendingCall) -> PendingCall:
        """Make the run wait for the call."""
        self.life.add(begun.future)
        self._begun.append(begun)
        return begun

    async def ended(self) -> None:
        """Wait for every call of the run. Raises the error of a call that the handler did not await."""
        await self.life.ended()
        for begun in self._begun:
            if not begun.is_awaited:
                begun.future.result()


async def awaited(function: Callable[..., Coroutine[Any, Any, Any]], ctx: Context, *arguments: Any) -> Any:
    """Run the function; returns its result after all its calls have ended."""
    view = AsyncContext.of(ctx)
    life = view.life
    try:
        try:
            result = await function(view, *arguments)
        finally:
            await asyncio.sleep(0)  # lets tasks that the handler just started begin their calls as part of the run
        life.phase = Phase.ENDING
        await view.ended()
        life.check_awaited()
        life.phase = Phase.OVER if await _is_ours(ctx.api) else Phase.FAILED
    except BaseException:
        life.phase = Phase.FAILED
        await life.ended()
        raise
    return result


async def _is_ours(api: object) -> bool:
    """True if the run still holds its lease when it ends. Only then may its remaining tasks call the Bot API."""
    if not isinstance(api, Calls) or api.is_sure():
        return True
    try:
        await blocking_executor().call(partial(api.ensure, "its end"))
    except (LeaseLost, RedisError):  # RedisError: unknown, as after a freeze of this process; the update runs again
        return False
    return True


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


class AsyncHandler:
    """A framework's coroutine handler. `before` is called before each update, on the thread that waits for it, so that
    it delays no other update; `steps` run at the start and end of each process.
    """

    def __init__(
        self,
        handle: Callable[[Context], Awaitable[Any]],
        before: Callable[[Context], object] | None = None,
        steps: Steps | None = None,
        lifetime: AsyncLifetime | None = None,
    ) -> None:
        self.handle, self.before, self.steps, self._lifetime = handle, before or (lambda ctx: None), steps, lifetime

    async def __call__(self, ctx: Context) -> Any:
        if self._lifetime is not None:
            await self._lifetime.begun(ctx)
        return await self.handle(ctx)

    def started(self, label: str) -> AsyncHandler:
        """The handler for a worker: its start-up runs once in each process, before the first update."""
        if self.steps is None:
            return self
        return AsyncHandler(self.handle, self.before, lifetime=AsyncLifetime(label, self.steps))

    def beside(self, function: Callable[[Context], Any]) -> Callable[[Context], Any]:
        """Another coroutine function of the same bot, which runs when the bot has started; a plain one is unchanged."""
        return AsyncHandler(function, lifetime=self._lifetime) if is_async(function) else function


class PlainCoroutine:
    """A coroutine function as a plain one: it runs on this process's event loop, and the caller waits until it ends.

    is_limited: it is cancelled when UPDATE_TIMEOUT is over or a newer update interrupts the run, in every pool.
    """

    def __init__(self, function: Callable[..., Any], *, is_limited: bool) -> None:
        update_wrapper(self, function)
        self.function, self._is_limited = function, is_limited
        self._reads_sessions = self._reads_modes = False

    def __call__(self, ctx: Context, *arguments: Any) -> Any:
        function = self.function
        if self._reads_sessions:
            # A read in the handler would block the event loop, and with it every chat, while Redis is away.
            with suppress(SessionError):  # it is raised when the handler uses the session
                _ = ctx.session
        if self._reads_modes:
            _ = ctx.mode
        if ctx.interrupts is not None:
            ctx.interrupts.read_ahead()
        if isinstance(function, AsyncHandler):
            function.before(ctx)
        limit_s = ctx.deadline_s - monotonic() if self._is_limited and ctx.deadline_s is not None else None
        on_interrupt = ctx.interrupts.delivery.on_interrupt if self._is_limited and ctx.interrupts else None
        coroutine = ctx.__dict__["coroutine"] = awaited(function, ctx, *arguments)
        try:
            return event_loop().run(coroutine, limit_s, on_interrupt)
        except OverdueError:
            raise UpdateTimeoutError("the handler took longer than UPDATE_TIMEOUT and was cancelled") from None
        except asyncio.CancelledError:
            if ctx.interrupted:
                raise Interrupted(f"a newer update has ended the run of {ctx!r}") from None
            raise
        finally:
            self._reads_sessions |= ctx.has_read_session
            self._reads_modes |= "has_read_mode" in ctx.__dict__
