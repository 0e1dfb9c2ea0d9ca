"""The spans of one append: `create` for each of its updates, which begins the update's trace, and `append` for all.

Guarantees that an update seen before gets no span if its whole batch was seen before. All spans begin when the batch
arrives, and end when Redis has stored it durably, or with the error.
"""

from __future__ import annotations

import time
from types import TracebackType

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from chatlanes.lanes.protocol.replies import Appended
from chatlanes.logs.ids import Ids
from chatlanes.logs.redaction import Secrets
from chatlanes.traces import carrier
from chatlanes.traces.harmless import harmless
from chatlanes.traces.off import NoBatch
from chatlanes.traces.spans import messaging, ours, record


class Batch(NoBatch):
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
        return carrier.write(span)

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
