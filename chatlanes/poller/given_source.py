"""A source that a program gives, instead of Telegram: an iterable of batches, plain or async.

Promises that it goes on from its `yield` only when the sink has taken all of the batch, and that otherwise it is
closed there. One thread, or one event loop, calls it, and nobody else.
Does not interrupt plain code: a source that waits for news when the poller stops is left waiting.
"""

from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from typing import Any

from chatlanes.poller.backpressure import Boundless, Room
from chatlanes.poller.one_thread import OneThread, OnLoop
from chatlanes.poller.stop import Stop
from chatlanes.poller.telegram import BATCH
from chatlanes.poller.telegram_source import CONFIRM_GRACE_S

#: How long after it was asked to stop the poller still waits for a source to tidy up.
CLOSE_GRACE_S = 1.8

#: Each batch is a list of updates.
GivenBatches = Iterable[list[Any]] | AsyncIterable[list[Any]]

_END = object()


class GivenSource:
    """`loop`: where an async source belongs, if anywhere."""

    def __init__(
        self, batches: GivenBatches, room: Room | Boundless, stop: Stop, loop: AbstractEventLoop | None = None
    ) -> None:
        self._batches, self._room, self._stop, self._loop = batches, room, stop, loop

    def __iter__(self) -> Generator[list[Any], None, None]:
        """Raises Stopping, and what the source raises."""
        self._room.look()
        given = self._given()
        try:
            # To go on is how the source hears that its last batch is durable: so it does also once the poller was
            # asked to stop. What it gives then stays its own.
            while (batch := self._stop.run(given.next, CONFIRM_GRACE_S)) is not _END and not self._stop.is_asked:
                yield from self._parts(_checked(batch))
        finally:
            self._stop.run(given.close, CLOSE_GRACE_S)

    def _given(self) -> "_Plain | _Async":
        if isinstance(self._batches, AsyncIterable):
            return _Async(self._batches, self._loop)
        return _Plain(self._batches)

    def _parts(self, batch: list[Any]) -> Iterator[list[Any]]:
        """As there is room for them: one append of many thousands would hold up Redis for everyone."""
        while batch:
            fits = min(self._room.wait(), BATCH)
            yield batch[:fits]
            batch = batch[fits:]


class _Plain:
    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._iterator: Iterator[Any] | None = None
        self._thread = OneThread("source")

    def next(self) -> Any:
        return self._thread.call(self._next)

    def close(self) -> None:
        """When it is not waiting any more."""
        self._thread.call(self._close)
        self._thread.end()

    def _next(self) -> Any:
        if self._iterator is None:
            self._iterator = iter(self._batches)
        return next(self._iterator, _END)

    def _close(self) -> None:
        if isinstance(self._iterator, Generator):
            self._iterator.close()


class _Async:
    def __init__(self, batches: AsyncIterable[Any], loop: AbstractEventLoop | None) -> None:
        self._batches = batches
        self._iterator: AsyncIterator[Any] | None = None
        self._loop = OnLoop("source", loop)

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
        raise TypeError(f"a source gives lists of updates, and this one gave a {type(batch).__name__}")
    return list(batch)
