"""A source of the program instead of Telegram, or a sink instead of the lanes, plain or async.

Guarantees that the source continues after its `yield` only when the sink has stored the whole batch, and is closed
there otherwise; that the sink gets the updates that the filter admits, in order; that all calls of one are made on one
thread or one event loop; and that an error of the sink ends the poller without confirming the batch. Does not retry:
only the author knows if it is safe. Does not interrupt plain code: a source that waits for updates when the poller
stops is left waiting.
"""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Iterator, Sized
from concurrent.futures import Future
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from threading import Thread
from typing import Any, Protocol

from celery_lanes.protocol import Appended
from chatlanes.poller.bot_api import BATCH
from chatlanes.poller.filter import Filter
from chatlanes.poller.loop import APPEND_GRACE_S, CONFIRM_GRACE_S, Sink
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import SerialExecutor, Stop

#: How long the poller waits for a source to close after the stop request.
CLOSE_GRACE_S = 1.2

#: Each batch is a list of updates.
Batches = Iterable[list[Any]] | AsyncIterable[list[Any]]

_END = object()


class SinkLike(Protocol):
    """If the sink has a length, it is the `size` of the poller."""

    def append(self, updates: list[Any], /) -> object:
        """Returns when the updates are stored. The source may forget them then. May be an `async def`."""


@dataclass(frozen=True)
class CustomEndpoints:
    """The endpoints that the program gives. `loop` is the event loop for async ones. Raises TypeError."""

    source: Batches | None = None
    sink: SinkLike | None = None
    loop: AbstractEventLoop | None = None

    def __post_init__(self) -> None:
        if self.source is not None and not (hasattr(self.source, "__iter__") or hasattr(self.source, "__aiter__")):
            raise TypeError("a source must be an iterable of batches; call your generator function: source=updates()")
        if self.sink is not None and not callable(getattr(self.sink, "append", None)):
            raise TypeError("a sink must have a method append(updates)")


#: From Telegram into the lanes.
STANDARD = CustomEndpoints()


class CustomSink:
    """`loop`: the event loop for an async sink; None: a new one."""

    def __init__(
        self, sink: SinkLike, filtering: Filter, progress: Progress, stop: Stop, loop: AbstractEventLoop | None = None
    ) -> None:
        self._sink, self._filtering, self._progress, self._stop = sink, filtering, progress, stop
        self._is_async = iscoroutinefunction(sink.append)
        self._executor = LoopExecutor("sink", loop) if self._is_async else SerialExecutor("sink")

    def append(self, updates: list[Any]) -> None:
        """Raises the errors of the sink, and Stopping if the sink has not returned in time."""
        wanted = self._filtering.admitted(updates)
        if wanted:
            self._stop.run_in_flight(lambda: self._executor.call(lambda: self._append(wanted)), APPEND_GRACE_S)
        appended = Appended(added=len(wanted), seen=0, buried=0, pending=self.size())
        self._progress.count(updates, len(updates) - len(wanted), appended)

    def refresh(self) -> None:
        pass

    def room(self) -> int:
        """The sink delays its source by not returning."""
        return BATCH

    def size(self) -> int:
        return len(self._sink) if isinstance(self._sink, Sized) else 0

    def close(self) -> None:
        self._executor.end()

    def _append(self, updates: list[Any]) -> Any:
        result = self._sink.append(updates)
        if isawaitable(result) and not self._is_async:
            raise TypeError("`append` of a sink must be an `async def`, or return when the updates are stored")
        return result


class CustomSource:
    """`loop`: the event loop for an async source; None: a new one."""

    def __init__(self, batches: Batches, sink: Sink, stop: Stop, loop: AbstractEventLoop | None = None) -> None:
        self._batches, self._sink, self._stop, self._loop = batches, sink, stop, loop

    def __iter__(self) -> Generator[list[Any], None, None]:
        """Raises Stopping, and the errors of the source."""
        self._sink.refresh()
        source = _Batches(self._batches, self._loop)
        try:
            # The request for the next batch tells the source that the last one is durable, so it is made once more
            # after the stop request. A batch that it returns then is ignored.
            while (batch := self._stop.run(source.next, CONFIRM_GRACE_S)) is not _END and not self._stop.is_requested:
                yield from self._parts(_checked(batch))
        finally:
            self._stop.run(source.close, CLOSE_GRACE_S)

    def _parts(self, batch: list[Any]) -> Iterator[list[Any]]:
        """Splits a batch into parts that fit. One append of many thousands would delay other clients of Redis."""
        while batch:
            fits = min(self._sink.room(), BATCH)
            yield batch[:fits]
            batch = batch[fits:]


class _Batches:
    """The iterator of a source. All its calls are made on one thread; those of an async source, on one event loop."""

    def __init__(self, batches: Batches, loop: AbstractEventLoop | None) -> None:
        self._batches = batches
        self._iterator: Any = None
        is_async = isinstance(batches, AsyncIterable)
        self._iter: Callable[[Any], Any] = aiter if is_async else iter
        self._advance: Callable[[Any, object], Any] = anext if is_async else next
        self._executor = LoopExecutor("source", loop) if is_async else SerialExecutor("source")

    def next(self) -> Any:
        return self._executor.call(self._next)

    def close(self) -> None:
        """Waits until a plain source does not run, and cancels an async one."""
        self._executor.call(self._close)
        self._executor.end()

    def _next(self) -> Any:
        if self._iterator is None:
            self._iterator = self._iter(self._batches)
        return self._advance(self._iterator, _END)

    def _close(self) -> Any:
        if isinstance(self._iterator, AsyncGenerator):
            return self._iterator.aclose()
        return self._iterator.close() if isinstance(self._iterator, Generator) else None


def _checked(batch: Any) -> list[Any]:
    if not isinstance(batch, list | tuple):
        raise TypeError(f"a source must yield lists of updates, not {type(batch).__name__}")
    return list(batch)


class LoopExecutor:
    """Runs functions, plain or async, on `loop`, or on a new loop if it is None."""

    def __init__(self, name: str, loop: AbstractEventLoop | None) -> None:
        self._is_own = loop is None
        self._loop = loop or asyncio.new_event_loop()
        self._running: Future[Any] | None = None
        if self._is_own:
            Thread(target=self._serve, name=name, daemon=True).start()

    def call(self, function: Callable[[], Any]) -> Any:
        """Returns its result or raises its error. A call that still runs was abandoned, and is cancelled first."""
        if self._running:
            self._running.cancel()
        self._running = asyncio.run_coroutine_threadsafe(_awaited(function), self._loop)
        return self._running.result()

    def end(self) -> None:
        if self._is_own:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()


async def _awaited(function: Callable[[], Any]) -> Any:
    result = function()
    return await result if isawaitable(result) else result
