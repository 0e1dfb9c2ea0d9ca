"""`run(settings)`: a poller inside another program, on a thread, and the handle that controls it.

Guarantees that `stop` returns only after the updates in flight are durable, and confirmed if the source supports it.
Does not read the environment and installs no signal handler: the program handles SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Self

from chatlanes.poller.custom import Batches, CustomEndpoints, SinkLike
from chatlanes.poller.factory import check, poller_of
from chatlanes.poller.loop import Poller
from chatlanes.poller.runtime import Stop, Stopping
from chatlanes.settings import Settings, SettingsError

log = logging.getLogger("poller")

#: The thread must end within this time after the timeout of `stop`.
END_WITHIN_S = 5.0


def run(settings: Settings, *, source: Batches | None = None, sink: SinkLike | None = None) -> Handle:
    """Starts a poller from Telegram, or `source`, into the lanes, or `sink`. Returns at once.

    `source`: an iterable of batches, plain or async, each a list of updates. It is asked for the next batch only when
    the last one is durable. `sink`: an object with `append(updates)`, plain or async, that returns when they are
    durable. Async ones run on the event loop in which `run` is called, if there is one.
    Raises SettingsError or ImportPathError for invalid settings. Later errors are in `task`.
    """
    return Handle(settings, CustomEndpoints(source, sink, _running_loop())).start()


class Handle:
    """One poller. After it has ended it can be started again, if its source can be iterated again."""

    def __init__(self, settings: Settings, given: CustomEndpoints) -> None:
        """Does not start the poller. Raises the errors of `run`."""
        if len(settings.served) > 1:
            raise SettingsError("BOTS names several bots: run one poller for each of `settings.served`")
        [self._settings] = settings.served or (settings,)
        self._given = given
        check(self._settings, given)
        self._starting = Lock()
        self._run: _PollerThread | None = None

    def start(self) -> Self:
        """Starts the poller unless it runs. The process stays alive until the poller has ended."""
        with self._starting:
            if self._run is None or self._run.ended.done():
                self._run = _PollerThread(lambda stop: poller_of(self._settings, stop, self._given))
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Stops fetching, and returns when the updates in flight are durable. `timeout` is in seconds; None: no limit.

        Raises TimeoutError if they are not durable after `timeout`; they are not confirmed then, and arrive again.
        Does not raise an earlier error of the poller, which is in `task`. Raises RuntimeError on the event loop of
        an async source or sink, which would block: use `astop` there.
        """
        self._refuse_on_its_loop()
        self._started.stop(timeout)

    async def astop(self, timeout: float | None = None) -> None:
        """Like `stop`, for asyncio programs."""
        await asyncio.to_thread(self._started.stop, timeout)

    @property
    def task(self) -> Future[None]:
        """Done when the poller has ended: it was stopped, its source has ended, or it failed (the exception)."""
        return self._started.ended

    @property
    def is_running(self) -> bool:
        """False after a stop request, although updates may still be in flight."""
        return self._started.is_running

    @property
    def size(self) -> int:
        """The number of pending updates: those that wait or run in the lanes, or the length of a custom sink.

        0 before Redis has answered for the first time. Raises RedisError.
        """
        poller = self._started.poller
        return poller.sink.size() if poller and not self.task.done() else 0

    @property
    def _started(self) -> _PollerThread:
        if self._run is None:
            raise RuntimeError("this poller was never started: call start()")
        return self._run

    def _refuse_on_its_loop(self) -> None:
        loop = _running_loop()
        if loop is not None and loop is self._given.loop and (self._given.source, self._given.sink) != (None, None):
            raise RuntimeError("in an asyncio program use `await handle.astop()`, or `async with run(…)`")

    def __await__(self) -> Generator[None, None, None]:
        """Waits until the poller has ended. Cancelling the wait does not stop the poller."""
        return asyncio.wrap_future(self.task).__await__()

    def __enter__(self) -> Self:
        self._refuse_on_its_loop()
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.astop()


class _PollerThread:
    """The poller from one start to its end."""

    def __init__(self, build: Callable[[Stop], Poller]) -> None:
        self.ended: Future[None] = Future()
        # Cancelling a task that awaits it must not cancel this future.
        self.ended.set_running_or_notify_cancel()
        self.poller: Poller | None = None
        self._build = build
        self._stop = Stop()
        Thread(target=self._until_it_ends, name="poller").start()

    @property
    def is_running(self) -> bool:
        return not self.ended.done() and not self._stop.is_requested

    def stop(self, timeout_s: float | None) -> None:
        self._stop.request(timeout_s)
        try:
            failure = self.ended.exception(None if timeout_s is None else timeout_s + END_WITHIN_S)
        except TimeoutError:
            raise TimeoutError(f"the poller has not ended {timeout_s} s after the stop request") from None
        left = self.poller.in_flight if self.poller and failure is None else 0
        if left:
            raise TimeoutError(f"{left} updates were not durable after {timeout_s} s; they are sent again")

    def _until_it_ends(self) -> None:
        try:
            self.poller = self._build(self._stop)
            self.poller.run()
        except Stopping:
            pass  # before any update was fetched
        except BaseException as error:
            log.error("the poller has ended: %s", error)  # `task` has the traceback
            self.ended.set_exception(error)
            return
        self.ended.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
