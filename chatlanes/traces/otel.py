"""Traces by OpenTelemetry, with the terms of its semantic conventions for messaging: create, send, process.

Guarantees one trace for each update: `create` in the poller or receiver, a `process` below it for each of its runs, and
the Bot API calls of a run below that. Its batch has a span in another trace (`append`), which is linked
to each `create`.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from chatlanes.lanes import Delivery
from chatlanes.logs.ids import TRACE
from chatlanes.logs.redaction import Secrets
from chatlanes.settings import Settings
from chatlanes.traces import carrier
from chatlanes.traces.batch import Batch
from chatlanes.traces.harmless import harmless
from chatlanes.traces.off import NO_BATCH, NO_SPAN, Describe, NoBatch, NoSpan, RunningUpdate, Traces
from chatlanes.traces.provider import Provider
from chatlanes.traces.spans import OneSpan, Within, messaging, ours, under, unseen


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
        if carrier.is_unsampled(carried):
            return Within(under(carrier.unsampled()))
        queue = (request.delivery_info or {}).get("routing_key", "")
        about = {
            **messaging("process", queue, request.id),
            **ours({"kind": update.kind, "chat": update.chat_id, "attempt": update.attempt, "fence": update.fence}),
            **ours({"outcome": "settled"}),  # unless the run sets another outcome
            **(ours({"died": delivery.died, "waited_s": delivery.waited_s}) if delivery else {}),
        }
        span = self._provider.tracer().start_span(f"process {queue}", carrier.read(carried), SpanKind.CONSUMER, about)
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
