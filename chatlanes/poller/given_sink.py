"""A sink that a program gives, instead of the lanes: anything with `append(updates)`, plain or async.

Promises that it gets what the filter lets in, in order, from one thread or one event loop only, and that an error of
its own ends the poller with nothing of the batch confirmed.
Does not try again: only who wrote the sink knows whether that is safe.
"""

from asyncio import AbstractEventLoop
from collections.abc import Sized
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Protocol

from chatlanes.lanes.protocol.replies import Appended
from chatlanes.poller.filter import Filter
from chatlanes.poller.lanes_sink import APPEND_GRACE_S
from chatlanes.poller.one_thread import OneThread, OnLoop
from chatlanes.poller.report import Tally
from chatlanes.poller.stop import Stop


class Appends(Protocol):
    """When it has a length, that is the `size` of the poller."""

    def append(self, updates: list[Any], /) -> object:
        """Returns when the updates are safe: then the source may forget them. May be an `async def`."""


class GivenSink:
    """`loop`: where an async sink belongs, if anywhere."""

    def __init__(
        self, sink: Appends, filtering: Filter, tally: Tally, stop: Stop, loop: AbstractEventLoop | None = None
    ) -> None:
        self._sink, self._filtering, self._tally, self._stop = sink, filtering, tally, stop
        self._is_async = iscoroutinefunction(sink.append)
        self._apart = OnLoop("sink", loop) if self._is_async else OneThread("sink")

    def append(self, updates: list[Any]) -> None:
        """Raises what the sink raises, and Stopping before it has returned."""
        wanted = self._filtering.admitted(updates)
        if wanted:
            self._stop.see_through(lambda: self._apart.call(lambda: self._append(wanted)), APPEND_GRACE_S)
        appended = Appended(added=len(wanted), seen=0, buried=0, pending=self.size())
        self._tally.count(updates, len(updates) - len(wanted), appended)

    def size(self) -> int:
        return len(self._sink) if isinstance(self._sink, Sized) else 0

    def close(self) -> None:
        self._apart.end()

    def _append(self, updates: list[Any]) -> Any:
        result = self._sink.append(updates)
        if isawaitable(result) and not self._is_async:
            raise TypeError("the append of a sink must be an `async def`, or return when the updates are safe")
        return result
