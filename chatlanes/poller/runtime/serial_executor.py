"""Runs the code of a custom source or sink, which may block forever and may have to be called from one thread.

Guarantees that all calls of a SerialExecutor run on the same thread, in order, and those of a LoopExecutor on the same
event loop. Does not keep the process alive for a call that never returns.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any


class SerialExecutor:
    """For plain functions."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        Thread(target=self._serve, name=name, daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """Returns its result or raises its error."""
        result: Future[Any] = Future()
        self._calls.put((function, result))
        return result.result()

    def end(self) -> None:
        """Ends the thread after the calls that were made before."""
        self._calls.put(None)

    def _serve(self) -> None:
        while work := self._calls.get():
            function, result = work
            try:
                result.set_result(function())
            except BaseException as error:  # the caller gets every outcome
                result.set_exception(error)


class LoopExecutor:
    """For coroutine functions. They run on `loop`, or on a new loop if it is None."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None) -> None:
        self._is_own = loop is None
        self._loop = loop or asyncio.new_event_loop()
        self._running: Future[Any] | None = None
        if self._is_own:
            Thread(target=self._serve, name=name, daemon=True).start()

    def call(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """Returns its result or raises its error."""
        self._running = asyncio.run_coroutine_threadsafe(_awaited(function), self._loop)
        return self._running.result()

    def cancel(self) -> None:
        """Cancels a call that still runs and was abandoned."""
        if self._running:
            self._running.cancel()

    def end(self) -> None:
        if self._is_own:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


async def _awaited(function: Callable[[], Awaitable[Any]]) -> Any:
    return await function()
