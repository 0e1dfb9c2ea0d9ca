"""A sink of the program, instead of the lanes: any object with `append(updates)`, plain or async.

Guarantees that the sink gets the updates that the filter admits, in order, on one thread or one event loop, and that
an error of the sink ends the poller without confirming the batch. Does not retry: only the author knows if it is safe.
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
    """If the sink has a length, it is the `size` of the poller."""

    def append(self, updates: list[Any], /) -> object:
        """Returns when the updates are stored. The source may forget them then. May be an `async def`."""


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

    def size(self) -> int:
        return len(self._sink) if isinstance(self._sink, Sized) else 0

    def close(self) -> None:
        self._executor.end()

    def _append(self, updates: list[Any]) -> Any:
        result = self._sink.append(updates)
        if isawaitable(result) and not self._is_async:
            raise TypeError("`append` of a sink must be an `async def`, or return when the updates are stored")
        return result
