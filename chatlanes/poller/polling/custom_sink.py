"""A sink that a program supplies instead of the lanes: anything with `append(updates)`, plain or async.

Guarantees that it gets what the filter admits, in order, from one thread or one event loop only, and that an error of
its own ends the poller with nothing of the batch confirmed. Does not retry: only its author knows whether that is safe.
"""

from asyncio import AbstractEventLoop
from collections.abc import Sized
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Protocol

from chatlanes.lanes.protocol.replies import Appended
from chatlanes.poller.filter import Filter
from chatlanes.poller.polling.lanes_sink import APPEND_GRACE_S
from chatlanes.poller.progress import Progress
from chatlanes.poller.runtime import LoopExecutor, SerialExecutor, Stop


class SinkLike(Protocol):
    """Its length, if it has one, is the `size` of the poller."""

    def append(self, updates: list[Any], /) -> object:
        """Returns when the updates are stored: the source may then forget them. May be an `async def`."""


class CustomSink:
    """`loop`: the event loop of an async sink, if it has one."""

    def __init__(
        self, sink: SinkLike, filtering: Filter, progress: Progress, stop: Stop, loop: AbstractEventLoop | None = None
    ) -> None:
        self._sink, self._filtering, self._tally, self._stop = sink, filtering, progress, stop
        self._is_async = iscoroutinefunction(sink.append)
        self._executor = LoopExecutor("sink", loop) if self._is_async else SerialExecutor("sink")

    def append(self, updates: list[Any]) -> None:
        """Raises what the sink raises, and Stopping before it has returned."""
        wanted = self._filtering.admitted(updates)
        if wanted:
            self._stop.run_in_flight(lambda: self._executor.call(lambda: self._append(wanted)), APPEND_GRACE_S)
        appended = Appended(added=len(wanted), seen=0, buried=0, pending=self.size())
        self._tally.count(updates, len(updates) - len(wanted), appended)

    def size(self) -> int:
        return len(self._sink) if isinstance(self._sink, Sized) else 0

    def close(self) -> None:
        self._executor.end()

    def _append(self, updates: list[Any]) -> Any:
        result = self._sink.append(updates)
        if isawaitable(result) and not self._is_async:
            raise TypeError("the append of a sink must be an `async def`, or return when the updates are safe")
        return result
