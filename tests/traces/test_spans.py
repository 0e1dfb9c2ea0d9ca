"""Spans of appends, runs and calls. tests/pipeline/monitoring/test_traces.py tests the sent ones."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from celery.exceptions import Ignore, Reject, Retry
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_OFF, DEFAULT_ON, Decision, Sampler, StaticSampler
from opentelemetry.trace import get_current_span

from celery_lanes.protocol import Appended
from chatlanes import traces
from chatlanes.bot.calls import run_calls
from chatlanes.bot.context import Context
from chatlanes.logs.ids import TRACE, trace_of
from chatlanes.settings import Settings
from chatlanes.tasks import settlement
from chatlanes.telegram.client import BotApi
from chatlanes.telegram.errors import BadRequest, NetworkError, TooManyRequests
from chatlanes.telegram.flood.parking import FloodWait, ParkUpdate
from chatlanes.traces import NoSpan, spans
from chatlanes.traces.otel import Otel

CTX = Context({"update_id": 7, "message": {"chat": {"id": -5}}}, BotApi("http://127.0.0.1", ""), attempt=2)


class Traced(Otel):
    """`spans` are those that have ended, oldest first."""

    def __init__(self, sampler: Sampler = DEFAULT_ON) -> None:
        super().__init__("worker", Settings(bot_token="12:SECRET-part"))
        self._ended = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self._provider.tracer = lambda: provider.get_tracer("test")  # type: ignore[method-assign]

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._ended.get_finished_spans()

    def append(self, *ids: str, answer: Appended | Exception) -> list[str]:
        """The headers."""
        with self.appending() as batch:
            headers = [batch.header(each, "updates.3", "(message, chat -5, update 1)") for each in ids]
            if isinstance(answer, Exception):
                raise answer
            batch.appended(answer)
        return headers


def fields(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def request(header: str | None = None) -> Any:
    return SimpleNamespace(
        id="12:7", delivery_info={"routing_key": "updates.3"}, get={TRACE: header}.get if header else {}.get
    )


def running(traced: Traced, header: str | None = None) -> NoSpan:
    return traced.running(request(header), CTX, None, settlement.ending_of)


def calling(traced: Traced, method: str, chat: int | None, url: str) -> NoSpan:
    return traced.calling(method, chat, url, run_calls.ending_of)


def test_each_update_begins_a_trace() -> None:
    traced = Traced()
    first, second = traced.append("12:7", "12:8", answer=Appended(2, 0, 0, 2))
    assert trace_of(first) != trace_of(second)
    with (
        running(traced, first),
        calling(traced, "getMe", -5, "https://api.telegram.org"),
    ):
        assert traced.ids()["trace_id"] == trace_of(first)
    assert traced.ids() == {}
    create, other, batch, call, run = traced.spans
    assert [span.name for span in traced.spans] == ["create updates.3"] * 2 + ["append", "getMe", "process updates.3"]
    assert [link.context for link in batch.links] == [create.context, other.context]
    assert [each.parent and each.parent.span_id for each in (run, call)] == [
        create.context.span_id,
        run.context.span_id,
    ]
    assert fields(batch)["messaging.batch.message_count"] == 2
    assert fields(run)["chatlanes.attempt"] == 2
    assert "chatlanes.died" not in fields(run)
    assert (fields(call)["server.address"], fields(call)["server.port"]) == (
        "api.telegram.org",
        443,
    )


def test_unsampled_updates_stay_unsampled() -> None:
    [header] = Traced(DEFAULT_OFF).append("12:7", answer=Appended(1, 0, 0, 1))
    assert header == "0"
    # Even one that chooses all by itself
    worker = Traced()
    with (
        running(worker, header),
        calling(worker, "getMe", None, "http://here"),
    ):
        assert not get_current_span().is_recording()
        assert worker.ids() == {}
    assert worker.spans == ()


def test_a_run_without_a_trace_begins_one() -> None:
    traced = Traced()
    for header in (None, "nonsense"):
        with running(traced, header):
            pass
    assert [span.parent for span in traced.spans] == [None, None]


def test_only_new_or_failed_batches_have_spans() -> None:
    traced = Traced()
    traced.append("12:7", answer=Appended(added=0, seen=1, buried=0, pending=0))
    assert traced.spans == ()
    with pytest.raises(ConnectionError):
        traced.append("12:7", answer=ConnectionError("away"))
    assert [span.status.description for span in traced.spans] == ["ConnectionError: away"] * 2


def failed(error: Exception) -> Retry:
    """As settlement.py raises it."""
    retry = Retry(exc=error, when=1)
    retry.__cause__ = error
    return retry


@pytest.mark.parametrize(
    ("raised", "outcome", "error"),
    [
        (None, "settled", None),
        (failed(ValueError("12:SECRET-part")), "retried", "ValueError: <token>"),
        (Retry(exc=OSError("it does not start"), when=60), "parked", "OSError: it does not start"),
        (Retry(exc=FloodWait("later"), when=1), "parked", None),
        (Ignore("its lease was over"), "lost", "Ignore: its lease was over"),
        (Reject("Redis is away"), "given back", "Reject: ('Redis is away', False)"),
        (ValueError("no"), "buried", "ValueError: no"),
        (SystemExit(), "interrupted", "SystemExit: "),
    ],
)
def test_span_status_of_an_update(raised: BaseException | None, outcome: str, error: str | None) -> None:
    traced = Traced()
    try:
        with running(traced):
            if raised:
                raise raised
    except type(raised or Exception()):
        pass
    [run] = traced.spans
    assert fields(run)["chatlanes.outcome"] == outcome
    assert (run.status.description, len(run.events)) == (error, 0 if error is None else 1)


@pytest.mark.parametrize(
    ("raised", "told", "is_error"),
    [
        (BadRequest("x", 7, "chat not found", 400), {"http.response.status_code": 400}, True),
        (
            TooManyRequests("x", 7, "slow", 429, 3.0),
            {"chatlanes.retry_after_s": 3.0, "error.type": "TooManyRequests"},
            True,
        ),
        (NetworkError("x", 7, "no answer"), {"chatlanes.uncertain": True}, True),
        (ParkUpdate("later"), {"chatlanes.parked": True}, False),
    ],
)
def test_span_status_of_a_call(raised: BaseException, told: dict[str, Any], is_error: bool) -> None:
    traced = Traced()
    with pytest.raises(type(raised)), calling(traced, "x", 7, "http://127.0.0.1:8081"):
        raise raised
    [call] = traced.spans
    assert told.items() <= fields(call).items()
    assert call.status.is_ok is not is_error


async def double_soon(number: int) -> int:
    with traces.here().calling("getMe", None, "http://here", run_calls.ending_of):
        return number * 2


def double(number: int) -> int:
    with traces.here().calling("getMe", None, "http://here", run_calls.ending_of):
        return number * 2


def test_a_step_has_a_span_which_is_the_parent_of_those_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = Traced()
    monkeypatch.setattr(spans, "_here", traced)

    async def handler() -> list[int]:
        return [await CTX.step("double", function, 2) for function in (double, double_soon)]

    with running(traced):
        assert CTX.step("double", double, 2) == 4
        assert asyncio.run(handler()) == [4, 4]
        with pytest.raises(ZeroDivisionError):
            CTX.step("divide", lambda: 1 // 0)
    *inside, failed, run = traced.spans
    assert [span.name for span in inside] == ["getMe", "step double"] * 3
    for call, step in zip(inside[::2], inside[1::2], strict=True):
        assert call.parent == step.context
        assert step.parent == run.context
        assert fields(step) == {"chatlanes.step": "double"}
    assert (failed.name, failed.status.is_ok) == ("step divide", False)


def test_a_trace_failure_does_not_affect_the_update(caplog: pytest.LogCaptureFixture) -> None:
    # Given a custom sampler that fails
    class Broken(StaticSampler):
        def should_sample(self, *_: Any, **__: Any) -> Any:
            raise LookupError("no rate")

    traced = Traced(Broken(Decision.DROP))
    # Then everything continues, and each thing that cannot be traced is logged once
    for _ in range(2):
        assert traced.append("12:7", answer=Appended(1, 0, 0, 1)) == [""]
        with (
            running(traced),
            calling(traced, "getMe", None, "http://here") as call,
        ):
            call.set(replayed=False)
    assert sum(each.name == "chatlanes" for each in caplog.records) == 3
    assert traced.spans == ()
