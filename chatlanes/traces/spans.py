"""Spans that are current while their block lasts: spans that begin inside are their children.

Guarantees that no field and no error contains a token. An error is recorded with its type, message and traceback, as in
the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from opentelemetry.context import (
    _SUPPRESS_HTTP_INSTRUMENTATION_KEY,
    Context,
    attach,
    detach,
    get_current,
    set_value,
)
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from chatlanes.logs.errors import problem_of
from chatlanes.logs.redaction import Secrets
from chatlanes.traces.harmless import harmless
from chatlanes.traces.off import Describe, NoSpan

#: Prefix of fields outside of the conventions: chatlanes.update, chatlanes.attempt, …
OURS = "chatlanes."


def ours(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the prefix, without those that are None. A name with a dot is OpenTelemetry's and is kept."""
    return {name if "." in name else OURS + name: value for name, value in fields.items() if value is not None}


def messaging(operation: str, queue: str, message_id: str) -> dict[str, Any]:
    """The attributes of the semantic conventions."""
    return {
        "messaging.system": "chatlanes",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "messaging.message.id": message_id,
        **ours({"update": message_id, "bot": message_id.partition(":")[0]}),
    }


def record(span: Span, error: BaseException, secrets: Secrets) -> None:
    """Record the error as the failure of the span."""
    told = problem_of(error, 0, secrets)
    span.set_attribute("error.type", told["type"])
    span.set_status(Status(StatusCode.ERROR, secrets.cut(f"{told['type']}: {told['message']}")))
    fields = {"type": told["type"], "message": told["message"], "stacktrace": told["traceback"]}
    span.add_event("exception", {f"exception.{name}": secrets.cut(text) for name, text in fields.items()})


class Within(NoSpan):
    """Makes a context current."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._token: Any = None

    def __enter__(self) -> Self:
        self._token = attach(self._context)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        detach(self._token)
        return None


def under(span: Span) -> Context:
    return set_span_in_context(span)


def unseen(context: Context | None = None) -> Context:
    """A context in which HTTP clients are not instrumented: the URL of a Bot API call contains the token."""
    return set_value(_SUPPRESS_HTTP_INSTRUMENTATION_KEY, True, get_current() if context is None else context)


class OneSpan(Within):
    """A span that ends with its block; `describe` reads the error that ended it."""

    def __init__(self, span: Span, context: Context, secrets: Secrets, describe: Describe) -> None:
        super().__init__(context)
        self._span = span
        self._secrets = secrets
        self._describe = describe

    @harmless()
    def set(self, **fields: Any) -> None:
        self._span.set_attributes(ours(fields))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        try:
            self._end(error)
        finally:
            super().__exit__(kind, error, at)
        return None

    @harmless()
    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            ending = self._describe(error)
            self._span.set_attributes(ours(ending.fields))
            if ending.failure is not None:
                record(self._span, ending.failure, self._secrets)
        self._span.end()
