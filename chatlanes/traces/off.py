"""The interface of traces, in the form that does nothing: used unless OpenTelemetry is configured (otel.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from chatlanes.lanes import Delivery
from chatlanes.lanes.protocol.replies import Appended


class Ending(NamedTuple):
    """What a span records of the error that ended it: fields, and the error to report if it was a failure."""

    fields: Mapping[str, Any]
    failure: BaseException | None


#: Reads the error that ended a span. The callers know what their errors mean; traces do not.
Describe = Callable[[BaseException], Ending]


class RunningUpdate(Protocol):
    """What a span tells of the update that is run (bot.Context)."""

    @property
    def kind(self) -> str: ...

    @property
    def chat_id(self) -> int | None: ...

    @property
    def attempt(self) -> int: ...

    @property
    def fence(self) -> int | None: ...


class NoSpan:
    """Of one run of a handler, or one call of the Bot API."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        return None

    def set(self, **fields: Any) -> None:
        """Fields of the span; what is None is left out."""


class NoBatch(NoSpan):
    """Of one append."""

    def header(self, message_id: str, queue: str, shown: str, problem: str = "") -> str:
        """What is stored with an update so that its run belongs to the same trace; empty: nothing."""
        return ""

    def appended(self, answer: Appended) -> None: ...


NO_SPAN, NO_BATCH = NoSpan(), NoBatch()


class Traces:
    """Of one process."""

    def appending(self) -> NoBatch:
        """Around an append of a batch, which says what becomes of it."""
        return NO_BATCH

    def running(self, request: Any, update: RunningUpdate, delivery: Delivery | None, describe: Describe) -> NoSpan:
        """Around one run of an update; `request` is Celery's."""
        return NO_SPAN

    def calling(self, method: str, chat: int | str | None, url: str, describe: Describe) -> NoSpan:
        """Around a call of the Bot API, its waits included."""
        return NO_SPAN

    def event(self, name: str, **fields: Any) -> None:
        """In the span that this is a part of."""

    def ids(self) -> dict[str, str]:
        """`trace_id` and `span_id` of where this is called, for the log."""
        return {}

    def stop(self, within_s: float) -> None:
        """Send what is left."""
