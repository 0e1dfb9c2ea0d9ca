"""The spans of traces while OpenTelemetry is not configured, which do nothing, and the traces of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from celery_lanes import Delivery
from celery_lanes.protocol import Appended


class Ending(NamedTuple):
    """The fields that a span records of the error that ended it, and the error itself if it was a failure."""

    fields: Mapping[str, Any]
    failure: BaseException | None


#: Reads the error that ended a span. The callers know what their errors mean; traces do not.
Describe = Callable[[BaseException], Ending]


class NoSpan:
    """The span of one run of a handler, of one call of the Bot API, or of one step."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None: ...

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
    """The traces of one process. These do nothing: OpenTelemetry is not configured (otel.py)."""

    def appending(self) -> NoBatch:
        """A context manager for the append of a batch; `appended` is called with its outcome."""
        return NO_BATCH

    def running(self, request: Any, update: Any, delivery: Delivery | None, describe: Describe) -> NoSpan:
        """A context manager for one run of an update; `request` is Celery's, `update` the bot's Context."""
        return NO_SPAN

    def calling(self, method: str, chat: int | str | None, url: str, describe: Describe) -> NoSpan:
        """A context manager for a call of the Bot API, its waits included."""
        return NO_SPAN

    def stepping(self, name: str, describe: Describe) -> NoSpan:
        """A context manager for a step (ctx.step), from its begin in the journal to its outcome there."""
        return NO_SPAN

    def event(self, name: str, **fields: Any) -> None:
        """Add an event to the current span."""

    def ids(self) -> dict[str, str]:
        """The current `trace_id` and `span_id`, which the log shows."""
        return {}

    def stop(self, within_s: float) -> None:
        """Send the remaining spans."""


OFF = Traces()
_here = OFF


def here() -> Traces:
    """The traces of this process."""
    return _here


def use(traces: Traces) -> None:
    """From now on these are the traces of this process."""
    global _here
    _here = traces


def exporters(env: Mapping[str, str]) -> list[str]:
    """The names in OTEL_TRACES_EXPORTER, `otlp` when it is not set; none for `none`."""
    names = env.get("OTEL_TRACES_EXPORTER", "").strip() or "otlp"
    return [name for each in names.split(",") if (name := each.strip()) and name != "none"]
