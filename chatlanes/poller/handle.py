"""`run(settings)`: a poller inside another program, on a thread, and the handle that controls it.

Guarantees that `stop` returns only when what was in flight is durable, and confirmed where the source can be told.
Reads no environment and installs no signal handler: SIGTERM is the program's to handle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Self

from chatlanes.poller.factory import CustomEndpoints, check, poller_of
from chatlanes.poller.polling import Batches, Poller, SinkLike
from chatlanes.poller.runtime import Stop, Stopping
from chatlanes.settings import Settings, SettingsError

log = logging.getLogger("poller")

#: On top of what `stop` was given, for the thread to come to its end.
END_WITHIN_S = 5.0


def run(settings: Settings, *, source: Batches | None = None, sink: SinkLike | None = None) -> Handle:
    """Starts to poll: from Telegram, or `source`, into the lanes, or `sink`. Returns at once.

    `source`: an iterable of batches, plain or async, each a list of updates. It is asked for the next batch only when
    the last one is durable. `sink`: anything with `append(updates)`, plain or async, that returns when they are.
    What is async is awaited on the loop that `run` is called in, if it is called in one.
    Raises SettingsError, OrderByError or FilterError for settings that cannot work; what shows later is in `task`.
    """
    return Handle(settings, CustomEndpoints(source, sink, _running_loop())).start()


class Handle:
    """One poller, that may be started again after it has ended: with a source that can be iterated again."""

    def __init__(self, settings: Settings, given: CustomEndpoints) -> None:
        """Starts nothing yet. Raises as `run` does."""
        if len(settings.served) != 1:
            raise SettingsError("BOTS names several bots: run one poller for each of `settings.served`")
        [self._settings] = settings.served
        self._given = given
        _check_kinds(given)
        check(self._settings, given)
        self._starting = Lock()
        self._run: _PollerThread | None = None

    def start(self) -> Self:
        """Nothing happens while it runs. The process lives until it has ended."""
        with self._starting:
            if self._run is None or self._run.ended.done():
                self._run = _PollerThread(lambda stop: poller_of(self._settings, stop, self._given))
        return self

    def stop(self, timeout: float | None = None) -> None:
        """Fetches no more, and returns when what is in hand is durable; None: however long that takes, seconds.

        Raises TimeoutError when it is not, after `timeout`: then it is not confirmed either, and comes again.
        What ended the poller before is no matter of this: `task` has it. Raises RuntimeError where it would wait
        for a source or sink that waits for this very thread: `astop` is for programs of asyncio.
        """
        self._off_its_loop()
        self._started.stop(timeout)

    async def astop(self, timeout: float | None = None) -> None:
        """The same for a program of asyncio."""
        await asyncio.to_thread(self._started.stop, timeout)

    @property
    def task(self) -> Future[None]:
        """Done when the poller has ended: because it was stopped, its source has no more, or with what went wrong."""
        return self._started.ended

    @property
    def is_running(self) -> bool:
        """Not any more once it was asked to stop, although what is in hand may still be on its way."""
        return self._started.is_running

    @property
    def size(self) -> int:
        """How many updates are still to be done: those that wait or run in the lanes, or the length of your sink.

        0 before Redis has answered for the first time. Raises RedisError.
        """
        poller = self._started.poller
        return poller.sink.size() if poller and not self.task.done() else 0

    @property
    def _started(self) -> _PollerThread:
        if self._run is None:
            raise RuntimeError("this poller was never started: call start()")
        return self._run

    def _off_its_loop(self) -> None:
        loop = _running_loop()
        if loop is not None and loop is self._given.loop and (self._given.source, self._given.sink) != (None, None):
            raise RuntimeError("in a program of asyncio say `await handle.astop()`, or `async with run(…)`")

    def __await__(self) -> Generator[None, None, None]:
        """Until it has ended. Cancelled, the poller goes on."""
        return asyncio.wrap_future(self.task).__await__()

    def __enter__(self) -> Self:
        self._off_its_loop()
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return self.start()

    async def __aexit__(self, *error: object) -> None:
        await self.astop()


class _PollerThread:
    """From one start to its end."""

    def __init__(self, build: Callable[[Stop], Poller]) -> None:
        self.ended: Future[None] = Future()
        # So that whoever awaits it and is cancelled does not cancel this.
        self.ended.set_running_or_notify_cancel()
        self.poller: Poller | None = None
        self._build = build
        self._stop = Stop()
        Thread(target=self._until_it_ends, name="poller").start()

    @property
    def is_running(self) -> bool:
        return not self.ended.done() and not self._stop.is_requested

    def stop(self, timeout_s: float | None) -> None:
        self._stop.ask(timeout_s)
        try:
            failure = self.ended.exception(None if timeout_s is None else timeout_s + END_WITHIN_S)
        except TimeoutError:
            raise TimeoutError(f"the poller has not ended {timeout_s} s after it was asked to") from None
        left = self.poller.in_hand if self.poller and failure is None else 0
        if left:
            raise TimeoutError(f"{left} updates were not durable after {timeout_s} s; unconfirmed, they come again")

    def _until_it_ends(self) -> None:
        try:
            self.poller = self._build(self._stop)
            self.poller.run()
        except Stopping:
            pass  # before there was anything in hand
        except BaseException as error:
            log.error("the poller has ended: %s", error)  # with its traceback it is in `task`
            self.ended.set_exception(error)
            return
        self.ended.set_result(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _check_kinds(given: CustomEndpoints) -> None:
    if given.source is not None and not (hasattr(given.source, "__iter__") or hasattr(given.source, "__aiter__")):
        raise TypeError("a source is an iterable of batches; call your generator function: source=updates()")
    if given.sink is not None and not callable(getattr(given.sink, "append", None)):
        raise TypeError("a sink is anything with a method append(updates)")
