"""Traces by OpenTelemetry, with the terms of its semantic conventions for messaging: create, send, process.

Guarantees one trace for each update: `create` in the poller or receiver, a `process` below it for each of its runs, and
the Bot API calls of a run below that. Its batch has a span in another trace (`append`), which is linked
to each `create`. No field and no error contains a token. A failure of tracing is logged once and changes no outcome.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

from celery.exceptions import SoftTimeLimitExceeded
from opentelemetry import trace
from opentelemetry.context import (
    _SUPPRESS_HTTP_INSTRUMENTATION_KEY,
    Context,
    attach,
    detach,
    get_current,
    set_value,
)
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from celery_lanes import Delivery
from celery_lanes.protocol import Appended
from chatlanes.logs.errors import problem_of
from chatlanes.logs.ids import TRACE, Ids
from chatlanes.logs.redaction import Secrets
from chatlanes.settings import Settings
from chatlanes.traces.interface import NO_BATCH, NO_SPAN, Describe, NoBatch, NoSpan, RunningUpdate, Traces
from chatlanes.traces.provider import Provider

log = logging.getLogger("chatlanes")

P = ParamSpec("P")
T = TypeVar("T")

#: Prefix of fields outside of the conventions: chatlanes.update, chatlanes.attempt, …
OURS = "chatlanes."

#: The header of an update whose trace was not sampled: its worker does not trace it either. Otherwise the header is
#: the W3C `traceparent` of the `create` span; an update without one, from before traces were on, begins a trace where
#: it runs.
_UNSAMPLED: Final = "0"

_format, _ids = TraceContextTextMapPropagator(), RandomIdGenerator()

_logged: set[str] = set()


def harmless(instead: Any = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function so that it raises nothing, and returns this value when it fails."""

    def made(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def safe(*arguments: P.args, **named: P.kwargs) -> T:
            try:
                return function(*arguments, **named)
            except SoftTimeLimitExceeded:
                raise
            except Exception:
                if function.__qualname__ not in _logged:
                    _logged.add(function.__qualname__)
                    log.exception("traces: %s failed, and is left out; logged once", function.__qualname__)
                return instead

        return safe

    return made


class Otel(Traces):
    """The traces of one process and its children."""

    def __init__(self, part: str, settings: Settings, instance: str = "") -> None:
        """Raises ValueError."""
        self._provider = Provider(part, instance, os.environ)
        self._secrets = Secrets.of(settings)

    def __str__(self) -> str:
        return os.environ.get("OTEL_TRACES_EXPORTER") or "otlp"

    @harmless(NO_BATCH)
    def appending(self) -> NoBatch:
        return Batch(self._provider.tracer(), self._secrets)

    @harmless(NO_SPAN)
    def running(self, request: Any, update: RunningUpdate, delivery: Delivery | None, describe: Describe) -> NoSpan:
        carried = request.get(TRACE)
        if carried == _UNSAMPLED:
            return Within(under(_unsampled()))
        queue = (request.delivery_info or {}).get("routing_key", "")
        about = {
            **messaging("process", queue, request.id),
            **ours({"kind": update.kind, "chat": update.chat_id, "attempt": update.attempt, "fence": update.fence}),
            **ours({"outcome": "settled"}),  # unless the run sets another outcome
            **(ours({"died": delivery.died, "waited_s": delivery.waited_s}) if delivery else {}),
        }
        span = self._provider.tracer().start_span(f"process {queue}", _context_in(carried), SpanKind.CONSUMER, about)
        return OneSpan(span, under(span), self._secrets, describe)

    @harmless(NO_SPAN)
    def calling(self, method: str, chat: int | str | None, url: str, describe: Describe) -> NoSpan:
        place = urlsplit(url)
        about = {
            "rpc.system.name": "telegram",
            "rpc.method": method,
            "server.address": place.hostname or "",
            "server.port": place.port or (443 if place.scheme == "https" else 80),
            **ours({"chat": chat}),
        }
        span = self._provider.tracer().start_span(method, None, SpanKind.CLIENT, about)
        return OneSpan(span, unseen(under(span)), self._secrets, describe)

    @harmless()
    def event(self, name: str, **fields: Any) -> None:
        trace.get_current_span().add_event(name, ours(fields))

    @harmless({})
    def ids(self) -> dict[str, str]:
        context = trace.get_current_span().get_span_context()
        if not context.is_valid or not context.trace_flags.sampled:
            return {}
        return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}

    def stop(self, within_s: float) -> None:
        self._provider.stop(within_s)


class Batch(NoBatch):
    """The spans of one append: `create` for each of its updates, which begins the update's trace, and `append` for all.

    An update seen before gets no span if its whole batch was seen before. All spans begin when the batch arrives, and
    end when Redis has stored it durably, or with the error.
    """

    def __init__(self, tracer: Tracer, secrets: Secrets) -> None:
        self._tracer = tracer
        self._secrets = secrets
        self._began_ns = time.time_ns()
        self._created: list[Span] = []
        self._answer: Appended | None = None

    @harmless("")
    def header(self, message_id: str, queue: str, shown: str, problem: str = "") -> str:
        kind = shown.strip("()").partition(",")[0]
        span = self._tracer.start_span(
            f"create {queue}",
            Context(),  # a trace of its own, whatever is the current one
            SpanKind.PRODUCER,
            {**messaging("create", queue, message_id), **ours({"kind": kind, "chat": Ids.shown("", shown).chat})},
            start_time=self._began_ns,
        )
        if problem:
            span.set_status(Status(StatusCode.ERROR, f"buried: {problem}"))
        self._created.append(span)
        return _header_of(span)

    def appended(self, answer: Appended) -> None:
        self._answer = answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool | None:
        if not self._created or (self._answer and not self._answer.added):
            return None
        self._end_all(error)
        return None

    @harmless()
    def _end_all(self, error: BaseException | None) -> None:
        batch = self._tracer.start_span(
            "append",
            kind=SpanKind.CLIENT,
            attributes={
                "messaging.system": "chatlanes",
                "messaging.operation.name": "append",
                "messaging.operation.type": "send",
                "messaging.batch.message_count": len(self._created),
                **ours({name: getattr(self._answer, name, None) for name in ("added", "seen", "buried")}),
            },
            links=[Link(span.get_span_context()) for span in self._created],
            start_time=self._began_ns,
        )
        for span in (*self._created, batch):
            if error is not None:
                record(span, error, self._secrets)
            span.end()


class Within(NoSpan):
    """Makes a context current while its block lasts: spans that begin inside are its children."""

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


def under(span: Span) -> Context:
    return set_span_in_context(span)


def unseen(context: Context | None = None) -> Context:
    """A context in which HTTP clients are not instrumented: the URL of a Bot API call contains the token."""
    return set_value(_SUPPRESS_HTTP_INSTRUMENTATION_KEY, True, get_current() if context is None else context)


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


def _header_of(span: Span) -> str:
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return _UNSAMPLED
    carried: dict[str, str] = {}
    _format.inject(carried, set_span_in_context(span, Context()))
    return carried[TRACE]


def _context_in(carried: Any) -> Context:
    """The context that a run belongs to; empty if the header has none."""
    return _format.extract({TRACE: carried}, Context()) if isinstance(carried, str) else Context()


def _unsampled() -> Span:
    """A context in which nothing is recorded: samplers follow the decision of the parent."""
    context = SpanContext(_ids.generate_trace_id(), _ids.generate_span_id(), True, TraceFlags.get_default())
    return NonRecordingSpan(context)
