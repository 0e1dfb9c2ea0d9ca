"""What traces are while nobody wants any: these do nothing. otel.py has the same ones that do."""

from __future__ import annotations

import re
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from chatlanes.lanes.protocol.replies import Appended

if TYPE_CHECKING:
    from chatlanes.bot.context import Context
    from chatlanes.lanes import Delivery

#: The header of a message that says which trace it belongs to; as Celery's own instrumentation has it.
TRACE = "traceparent"
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


def trace_of(carried: object) -> str | None:
    """The id of the trace that the header names; None: none does."""
    found = _TRACEPARENT.match(carried) if isinstance(carried, str) else None
    return found[1] if found else None


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

    def running(self, request: Any, ctx: Context, delivery: Delivery | None) -> NoSpan:
        """Around the run of an update, by its Celery request. What ends it says what became of it."""
        return NO_SPAN

    def calling(self, method: str, chat: int | str | None, url: str) -> NoSpan:
        """Around a call of the Bot API, its waits included."""
        return NO_SPAN

    def event(self, name: str, **fields: Any) -> None:
        """In the span that this is a part of."""

    def ids(self) -> dict[str, str]:
        """`trace_id` and `span_id` of where this is called, for the log."""
        return {}

    def stop(self, within_s: float) -> None:
        """Send what is left."""
