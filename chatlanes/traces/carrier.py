"""The trace context of an update, in a header of its message: the W3C `traceparent` of its `create` span.

Guarantees that an update whose trace was not sampled has a header of one byte, and that its worker does not trace it
either. An update without the header, from before traces were on, begins a trace where it runs.
"""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from chatlanes.logs.ids import TRACE

_UNSAMPLED: Final = "0"

_format, _ids = TraceContextTextMapPropagator(), RandomIdGenerator()


def write(span: Span) -> str:
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return _UNSAMPLED
    carried: dict[str, str] = {}
    _format.inject(carried, set_span_in_context(span, Context()))
    return carried[TRACE]


def is_unsampled(carried: Any) -> bool:
    return bool(carried == _UNSAMPLED)


def read(carried: Any) -> Context:
    """The context that a run belongs to; empty if the header has none."""
    return _format.extract({TRACE: carried}, Context()) if isinstance(carried, str) else Context()


def unsampled() -> Span:
    """A context in which nothing is recorded: samplers follow the decision of the parent."""
    context = SpanContext(_ids.generate_trace_id(), _ids.generate_span_id(), True, TraceFlags.get_default())
    return NonRecordingSpan(context)
