"""Spans that are the current one while their block lasts: spans that begin inside are their children.

Guarantees that no field and no error holds a token. An error is recorded with its type, message and traceback, as in
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

#: Of our own fields: chatlanes.update, chatlanes.attempt, …
OURS = "chatlanes."


def ours(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that are None. A name with a dot is one of OpenTelemetry's own and stays as it is."""
    return {name if "." in name else OURS + name: value for name, value in fields.items() if value is not None}


def messaging(operation: str, queue: str, message_id: str) -> dict[str, Any]:
    """By the semantic conventions."""
    return {
        "messaging.system": "chatlanes",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
        "messaging.message.id": message_id,
        **ours({"update": message_id, "bot": message_id.partition(":")[0]}),
    }


def record(span: Span, error: BaseException, secrets: Secrets) -> None:
    """As the one thing that went wrong in it."""
    told = problem_of(error, 0, secrets)
    span.set_attribute("error.type", told["type"])
    span.set_status(Status(StatusCode.ERROR, secrets.cut(f"{told['type']}: {told['message']}")))
    fields = {"type": told["type"], "message": told["message"], "stacktrace": told["traceback"]}
    span.add_event("exception", {f"exception.{name}": secrets.cut(text) for name, text in fields.items()})


class Within(NoSpan):
    """Makes a context the current one."""

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
    """Instrumentation of HTTP clients looks away: the URL of a Bot API call holds the token."""
    return set_value(_SUPPRESS_HTTP_INSTRUMENTATION_KEY, True, get_current() if context is None else context)


class OneSpan(Within):
    """A span that ends with its block, by what `describe` makes of the error."""

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
