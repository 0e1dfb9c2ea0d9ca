"""The traces of this process: an interface that does nothing, unless OpenTelemetry is configured (otel.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from celery_lanes import Delivery
from celery_lanes.protocol import Appended


class Ending(NamedTuple):
    """The fields that a span records of the error that ended it, and the error itself if it was a failure."""

    fields: Mapping[str, Any]
    failure: BaseException | None


#: Reads the error that ended a span. The callers know what their errors mean; traces do not.
Describe = Callable[[BaseException], Ending]


class RunningUpdate(Protocol):
    """The properties of an update that a span records (bot.Context has them)."""

    @property
    def kind(self) -> str: ...

    @property
    def chat_id(self) -> int | None: ...

    @property
    def attempt(self) -> int: ...

    @property
    def fence(self) -> int | None: ...


class NoSpan:
    """The span of one run of a handler, or of one call of the Bot API."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        return None

    def set(self, **fields: Any) -> None:
        """Set fields of the span; those that are None are left out."""


class NoBatch(NoSpan):
    """The span of one append."""

    def header(self, message_id: str, queue: str, shown: str, problem: str = "") -> str:
        """A header, stored with an update so that its run belongs to the same trace; empty: none."""
        return ""

    def appended(self, answer: Appended) -> None: ...


NO_SPAN, NO_BATCH = NoSpan(), NoBatch()


class Traces:
    """The traces of one process."""

    def appending(self) -> NoBatch:
        """A context manager for the append of a batch; `appended` is called with its outcome."""
        return NO_BATCH

    def running(self, request: Any, update: RunningUpdate, delivery: Delivery | None, describe: Describe) -> NoSpan:
        """A context manager for one run of an update; `request` is Celery's."""
        return NO_SPAN

    def calling(self, method: str, chat: int | str | None, url: str, describe: Describe) -> NoSpan:
        """A context manager for a call of the Bot API, its waits included."""
        return NO_SPAN

    def event(self, name: str, **fields: Any) -> None:
        """Add an event to the current span."""

    def ids(self) -> dict[str, str]:
        """The current `trace_id` and `span_id`, for the log."""
        return {}

    def stop(self, within_s: float) -> None:
        """Send the remaining spans."""


OFF = Traces()
_here = OFF


def here() -> Traces:
    return _here


def use(traces: Traces) -> None:
    """The traces of this process from now on."""
    global _here
    _here = traces
