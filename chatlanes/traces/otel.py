"""Traces by OpenTelemetry, with the terms of its semantic conventions for messaging: create, send, process.

Guarantees one trace for each update: `create` in the poller or receiver, a `process` below it for each of its runs, and
the Bot API calls and the steps of a run below that. Its batch has a span in another trace (`append`), which is linked
to each `create`. No field and no error contains a token. A failure of tracing is logged once and changes no outcome.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import wraps
from importlib.metadata import entry_points
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
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
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
from chatlanes.traces.spans import (
    NO_BATCH,
    NO_SPAN,
    Describe,
    NoBatch,
    NoSpan,
    Traces,
    exporters,
)

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

GROUP = "opentelemetry_traces_exporter"
#: OTLP has an exporter for each protocol.
BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

#: Spans that may wait to be sent; more are dropped. A poller that catches up makes thousands per second.
QUEUE = 8_192
QUEUE_SIZE = "OTEL_BSP_MAX_QUEUE_SIZE"

MakeExporter = Callable[[], SpanExporter]

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
    def running(self, request: Any, update: Any, delivery: Delivery | None, describe: Describe) -> NoSpan:
        carried = request.get(TRACE)
        if carried == _UNSAMPLED:
            return Within(set_span_in_context(_unsampled()))
        queue = (request.delivery_info or {}).get("routing_key", "")
        about = {
            **messaging("process", queue, request.id),
            **ours({"kind": update.kind, "chat": update.chat_id, "attempt": update.attempt, "fence": update.fence}),
            **ours({"outcome": "settled"}),  # unless the run sets another outcome
            **(ours({"died": delivery.died, "waited_s": delivery.waited_s}) if delivery else {}),
        }
        span = self._provider.tracer().start_span(f"process {queue}", _context_in(carried), SpanKind.CONSUMER, about)
        return OneSpan(span, set_span_in_context(span), self._secrets, describe)

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
        return OneSpan(span, unseen(set_span_in_context(span)), self._secrets, describe)

    @harmless(NO_SPAN)
    def stepping(self, name: str, describe: Describe) -> NoSpan:
        span = self._provider.tracer().start_span(f"step {name}", None, SpanKind.INTERNAL, ours({"step": name}))
        return OneSpan(span, set_span_in_context(span), self._secrets, describe)

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

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        if self._created and (self._answer is None or self._answer.added):
            self._end_all(error)

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

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        detach(self._token)


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

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        try:
            self._end(error)
        finally:
            super().__exit__(kind, error, at)

    @harmless()
    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            ending = self._describe(error)
            self._span.set_attributes(ours(ending.fields))
            if ending.failure is not None:
                record(self._span, ending.failure, self._secrets)
        self._span.end()


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


# -- the provider


class Provider:
    """The provider of spans: the one that the program has set up, or one configured by OpenTelemetry's variables.

    Guarantees one provider for each process, created at its first span: a forked child has its own, with its own
    connections and thread. `part` and `instance` name a process if the variables do not.
    """

    def __init__(self, part: str, instance: str, env: Mapping[str, str]) -> None:
        """Raises ValueError for an exporter that is not installed, with the package to install."""
        self._resource = {"service.name": f"chatlanes-{part}", "service.instance.id": instance}
        self._made = [_exporter(name, env) for name in exporters(env)]
        self._lock = threading.Lock()
        self._tracer: Tracer | None = None
        self._own: TracerProvider | None = None
        # A child forked while the lock was held could never make its own.
        os.register_at_fork(after_in_child=self._forget)

    def tracer(self) -> Tracer:
        """The tracer of this process."""
        if self._tracer is None:
            with self._lock:
                self._tracer = self._tracer or self._make()
        return self._tracer

    def stop(self, within_s: float) -> None:
        """Send the remaining spans; a collector that does not answer is not waited for."""
        if self._tracer is None:
            return
        ending = self._own.shutdown if self._own else getattr(trace.get_tracer_provider(), "force_flush", lambda: None)
        thread = threading.Thread(target=ending, name="traces", daemon=True)
        thread.start()
        thread.join(within_s)

    def _forget(self) -> None:
        self._lock, self._tracer, self._own = threading.Lock(), None, None

    def _make(self) -> Tracer:
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            # At exit it would wait for its collector.
            self._own = TracerProvider(resource=self._resource_here(), shutdown_on_exit=False)
            for make in self._made:
                size = None if os.environ.get(QUEUE_SIZE) else QUEUE
                self._own.add_span_processor(BatchSpanProcessor(make(), max_queue_size=size))
            trace.set_tracer_provider(self._own)  # for the bot's own spans, too
        return trace.get_tracer("chatlanes")

    def _resource_here(self) -> Resource:
        given = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        is_named = "service.name=" in given or os.environ.get("OTEL_SERVICE_NAME")
        unsaid = {name: value for name, value in self._resource.items() if value and f"{name}=" not in given}
        if is_named:
            unsaid.pop("service.name", None)
        return Resource.create({**unsaid, "process.pid": os.getpid()})


def protocol(env: Mapping[str, str]) -> str:
    """The protocol of `otlp`."""
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if env.get(name, "").strip():
            return env[name].strip()
    return "http/protobuf"


def _exporter(name: str, env: Mapping[str, str]) -> MakeExporter:
    """Raises ValueError."""
    if name == "console":
        # One line per span. Not sys.stdout, which a worker redirects to its log.
        return lambda: ConsoleSpanExporter(out=sys.__stdout__ or sys.stdout, formatter=_line)
    way = protocol(env)
    known = BY_PROTOCOL.get(way, way) if name == "otlp" else name
    found = list(entry_points(group=GROUP, name=known))
    if not found:
        of = f"OTEL_EXPORTER_OTLP_PROTOCOL={way}" if name == "otlp" else f"OTEL_TRACES_EXPORTER={name}"
        package = f"opentelemetry-exporter-{known.replace('_', '-')}"
        raise ValueError(f"{of}: no such exporter is installed; pip install {package}, or name one that is")
    made: MakeExporter = found[0].load()
    return made


def _line(span: Any) -> str:
    return str(span.to_json(indent=None)) + os.linesep
