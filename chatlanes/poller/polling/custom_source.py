"""A source of the program, instead of Telegram: an iterable of batches, plain or async.

Guarantees that the source continues after its `yield` only when the sink has stored the whole batch, and is closed
there otherwise; all calls are made on one thread or one event loop. Does not interrupt plain code: a source that waits
for updates when the poller stops is left waiting.
"""

from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import Any

from chatlanes.poller.bot_api import BATCH
from chatlanes.poller.polling.backpressure import Backpressure, NoBackpressure
from chatlanes.poller.polling.telegram_source import CONFIRM_GRACE_S
from chatlanes.poller.runtime import LoopExecutor, SerialExecutor, Stop

#: How long the poller waits for a source to close after the stop request.
CLOSE_GRACE_S = 1.8

#: Each batch is a list of updates.
Batches = Iterable[list[Any]] | AsyncIterable[list[Any]]

_END = object()


class CustomSource:
    """`loop`: the event loop for an async source; None: a new one."""

    def __init__(
        self,
        batches: Batches,
        backpressure: Backpressure | NoBackpressure,
        stop: Stop,
        loop: AbstractEventLoop | None = None,
    ) -> None:
        self._batches, self._backpressure, self._stop, self._loop = batches, backpressure, stop, loop

    def __iter__(self) -> Generator[list[Any], None, None]:
        """Raises Stopping, and the errors of the source."""
        self._backpressure.refresh()
        source = self._batches_source()
        try:
            # The request for the next batch tells the source that the last one is durable, so it is made once more
            # after the stop request. A batch that it returns then is ignored.
            while (batch := self._stop.run(source.next, CONFIRM_GRACE_S)) is not _END and not self._stop.is_requested:
                yield from self._parts(_checked(batch))
        finally:
            self._stop.run(source.close, CLOSE_GRACE_S)

    def _batches_source(self) -> "_SyncBatches | _AsyncBatches":
        if isinstance(self._batches, AsyncIterable):
            return _AsyncBatches(self._batches, self._loop)
        return _SyncBatches(self._batches)

    def _parts(self, batch: list[Any]) -> Iterator[list[Any]]:
        """Splits a batch into parts that fit. One append of many thousands would delay other clients of Redis."""
        while batch:
            fits = min(self._backpressure.wait(), BATCH)
            yield batch[:fits]
            batch = batch[fits:]


class _SyncBatches:
    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._iterator: Iterator[Any] | None = None
        self._thread = SerialExecutor("source")

    def next(self) -> Any:
        return self._thread.call(self._next)

    def close(self) -> None:
        """Waits until the source does not run."""
        self._thread.call(self._close)
        self._thread.end()

    def _next(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._batches)
        return next(self._iterator, _END)

    def _close(self) -> None:
        if isinstance(self._iterator, Generator):
            self._iterator.close()


class _AsyncBatches:
    def __init__(self, batches: AsyncIterable[Any], loop: AbstractEventLoop | None) -> None:
        self._batches = batches
        self._iterator: AsyncIterator[Any] | None = None
        self._loop = LoopExecutor("source", loop)

    def next(self) -> Any:
        return self._loop.call(self._next)

    def close(self) -> None:
        self._loop.cancel()
        self._loop.call(self._close)
        self._loop.end()

    async def _next(self) -> Any:
        if self._iterator is None:
            self._iterator = aiter(self._batches)
        return await anext(self._iterator, _END)

    async def _close(self) -> None:
        if isinstance(self._iterator, AsyncGenerator):
            await self._iterator.aclose()


def _checked(batch: Any) -> list[Any]:
    if not isinstance(batch, list | tuple):
        raise TypeError(f"a source must yield lists of updates, not {type(batch).__name__}")
    return list(batch)
