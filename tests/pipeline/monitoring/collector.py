"""An HTTP server that receives spans by OTLP and stores them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = {2: "server", 3: "client", 4: "producer", 5: "consumer"}


@dataclass(frozen=True)
class ReceivedSpan:
    """A span. `process` is its service.name and process.pid."""

    name: str
    kind: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    fields: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    is_error: bool
    process: tuple[str, int]


class Collector:
    """`raw` holds all received bytes, decompressed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.raw = b""
        self.spans: list[ReceivedSpan] = []

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        self.raw += body
        for group in request.resource_spans:
            resource = _fields(group.resource.attributes)
            process = (str(resource["service.name"]), int(resource["process.pid"]))
            self.spans += [_received(span, process) for scope in group.scope_spans for span in scope.spans]

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def of_update(self, message_id: str, operation: str) -> list[ReceivedSpan]:
        """The spans of an update with this operation: `create` or `process`."""
        wanted = {"messaging.message.id": message_id, "messaging.operation.name": operation}
        return [span for span in self.spans if wanted.items() <= span.fields.items()]


@contextmanager
def collecting() -> Iterator[Collector]:
    class OtlpHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), OtlpHandler) as server:
        server.daemon_threads = True
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


def _received(span: Any, process: tuple[str, int]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=KINDS.get(span.kind, "internal"),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in span.links),
        fields=_fields(span.attributes),
        events=tuple((event.name, _fields(event.attributes)) for event in span.events),
        is_error=span.status.code == 2,
        process=process,
    )


def _fields(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
