"""The provider of spans: the one that the program has set up, or one configured by OpenTelemetry's variables.

Guarantees one provider for each process, created at its first span: a forked child has its own, with its own
connections and thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

from chatlanes.traces.switch import exporters, protocol

GROUP = "opentelemetry_traces_exporter"
#: OTLP has an exporter for each protocol.
BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

#: Spans that may wait to be sent; more are dropped. A poller that catches up makes thousands per second.
QUEUE = 8_192
QUEUE_SIZE = "OTEL_BSP_MAX_QUEUE_SIZE"

MakeExporter = Callable[[], SpanExporter]


class Provider:
    """`part` and `instance` name a process if the variables do not."""

    def __init__(self, part: str, instance: str, env: Mapping[str, str]) -> None:
        """Raises ValueError for an exporter that is not installed, with the package to install."""
        self._resource = {"service.name": f"chatlanes-{part}", "service.instance.id": instance}
        self._made = [_exporter(name, env) for name in exporters(env)]
        self._lock = threading.Lock()
        self._mine: tuple[int, trace.Tracer] | None = None
        self._own: TracerProvider | None = None
        # A child forked while the lock was held could never make its own.
        os.register_at_fork(after_in_child=self._forget)

    def tracer(self) -> trace.Tracer:
        """The tracer of this process."""
        mine = self._mine
        if mine is None:
            with self._lock:
                mine = self._mine = self._mine or (os.getpid(), self._make())
        return mine[1]

    def stop(self, within_s: float) -> None:
        """Send the remaining spans; a collector that does not answer is not waited for."""
        if self._mine is None:
            return
        ending = self._own.shutdown if self._own else getattr(trace.get_tracer_provider(), "force_flush", lambda: None)
        thread = threading.Thread(target=ending, name="traces", daemon=True)
        thread.start()
        thread.join(within_s)

    def _forget(self) -> None:
        self._lock, self._mine, self._own = threading.Lock(), None, None

    def _make(self) -> trace.Tracer:
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
