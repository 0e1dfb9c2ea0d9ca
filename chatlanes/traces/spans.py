"""Spans around what this process does, each the current one while it lasts: what is begun inside is below it.

Promises that tokens are in none of their fields and errors. An error is told with its type, its words and its
traceback, as in the log.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from celery.exceptions import Ignore, Reject, Retry
from opentelemetry.context import (
    _SUPPRESS_HTTP_INSTRUMENTATION_KEY,
    Context,
    attach,
    detach,
    get_current,
    set_value,
)
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from chatlanes.logs.redaction import Secrets
from chatlanes.tasks.outcome import problem_of
from chatlanes.telegram.errors import BotApiError, TooManyRequests
from chatlanes.telegram.flood.parking import FloodWait, ParkUpdate
from chatlanes.traces.harmless import harmless
from chatlanes.traces.off import NoSpan

#: Of our own fields: chatlanes.update, chatlanes.attempt, …
OURS = "chatlanes."


def ours(fields: dict[str, Any]) -> dict[str, Any]:
    return {OURS + name: value for name, value in fields.items() if value is not None}


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
    def __init__(self, span: Span, context: Context, secrets: Secrets) -> None:
        super().__init__(context)
        self._span = span
        self._secrets = secrets

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
        self.ended(error)
        self._span.end()

    def ended(self, error: BaseException | None) -> None:
        raise NotImplementedError


class RunSpan(OneSpan):
    """One run of an update."""

    _outcome = "settled"

    def set(self, **fields: Any) -> None:
        self._outcome = fields.pop("outcome", self._outcome)
        super().set(**fields)

    def ended(self, error: BaseException | None) -> None:
        outcome, failure = outcome_of(error) if error is not None else (self._outcome, None)
        super().set(outcome=outcome)
        if failure is not None:
            record(self._span, failure, self._secrets)


def outcome_of(error: BaseException) -> tuple[str, BaseException | None]:
    """What became of an update by what its task raised (settlement.py), and what went wrong, if anything did."""
    if isinstance(error, Retry):
        failure = None if isinstance(error.exc, FloodWait) else error.exc
        return ("retried" if error.__cause__ else "parked"), failure
    if isinstance(error, Ignore):
        return "lost", error.__cause__ or error
    if isinstance(error, Reject):
        return "given back", error.__cause__ or error
    if isinstance(error, Exception):
        return "buried", error
    return "interrupted", error


class CallSpan(OneSpan):
    """One call of the Bot API, with the waits before it and what was tried again."""

    def ended(self, error: BaseException | None) -> None:
        if isinstance(error, ParkUpdate):
            self.set(parked=True)
            return
        if isinstance(error, BotApiError):
            if error.code is not None:
                self._span.set_attribute("http.response.status_code", error.code)
            self.set(uncertain=error.uncertain)
            if isinstance(error, TooManyRequests):
                self.set(retry_after_s=error.retry_after)
        if error is not None:
            record(self._span, error, self._secrets)
