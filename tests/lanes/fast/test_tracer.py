"""A run by our tracer, compared with Celery's: same signals, hooks, log lines, request and outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import pytest
from celery import Celery, current_task, signals
from celery.app.task import Context
from celery.app.trace import build_tracer
from celery.exceptions import Ignore, Reject, Retry

import celery_lanes as lanes
from celery_lanes.fast import tracer as tracer_module
from celery_lanes.leases import background
from celery_lanes.protocol import Leased
from celery_lanes.protocol.envelope import pack_task
from celery_lanes.runtime import clock
from celery_lanes.transport.fetch import unpack

FAST = pytest.mark.fast("tracer")


class ExpectedError(Exception):
    """An error in the `throws` of the task."""


def _raise(error: type[BaseException], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    def raises(*_: Any) -> Any:
        raise error(*args, **kwargs)

    return raises


RUNS: dict[str, Callable[..., Any]] = {
    "returns a value": lambda number: {"number": number, "long": "x" * 5000},
    "returns nothing": lambda number: None,
    "fails": _raise(ValueError, "no"),
    "fails as expected": _raise(ExpectedError, "no"),
    "raises a BaseException": _raise(SystemExit, 3),
    "ignores": _raise(Ignore, "later"),
    "rejects": _raise(Reject, "no", requeue=True),
    "retries": _raise(Retry, "again", exc=ValueError("no"), when=3),
}
HOOKS = ("before_start", "on_success", "on_failure", "on_retry", "after_return")


class RunRecording:
    """All observable events of a run, in order."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def add(self, what: str, **fields: Any) -> None:
        self.events.append((what, _shown(fields)))

    def emit(self, record: logging.LogRecord) -> bool:
        self.add("log", level=record.levelname, message=record.msg, of=record.args, data=record.__dict__.get("data"))
        return False


def _shown(value: Any) -> Any:
    """A comparable form. Tracebacks and times are reduced to their type, because they always differ."""
    if isinstance(value, dict):
        skipped = ("signal", "einfo", "lanes_delivery", "runtime", "traceback")
        return {name: _shown(each) for name, each in value.items() if name not in skipped}
    if isinstance(value, Context):
        return _shown({**vars(value), "headers": value.headers})  # computed on access
    return type(value).__name__ if isinstance(value, (float, TracebackType)) else repr(value)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunRecording]:
    recording = RunRecording()
    recorded = {name: getattr(signals, f"task_{name}") for name in ("prerun", "postrun", "success", "failure", "retry")}
    recorded["internal_error"] = signals.task_internal_error
    receivers = [
        (signal, lambda name=name, **fields: recording.add(name, **fields)) for name, signal in recorded.items()
    ]
    for signal, receiver in receivers:
        signal.connect(receiver, weak=False)
    logger = logging.getLogger("celery.app.trace")
    logger.addFilter(recording.emit)
    monkeypatch.setattr(logger, "level", logging.INFO)
    monkeypatch.setattr(background, "_tables", {})
    yield recording
    for in_flight in background._tables.values():
        in_flight.channel.close()
    logger.removeFilter(recording.emit)
    for signal, receiver in receivers:
        signal.disconnect(receiver)


class Bench:
    """An app with one task, and messages of it that are leased to this process. Nothing is sent to Redis."""

    def __init__(
        self, run: Callable[..., Any], recording: RunRecording, failing: str | None = None, *, is_fast: bool = True
    ) -> None:
        self.app = Celery("traced", broker="redis://127.0.0.1:1/0", set_as_current=False)
        lanes.install(self.app)
        if is_fast:
            self.app.lanes.make_tracer = tracer_module.Tracer

        def body(task: Any, number: int, *, plus: int = 0) -> Any:
            recording.add("run", current=current_task.name, request=task.request)
            return run(number)

        def hook(name: str) -> Callable[..., None]:
            def call(task: Any, *args: Any) -> None:
                recording.add(name, args=[_shown(each) for each in args if type(each).__name__ != "ExceptionInfo"])
                if name == failing:
                    raise KeyError(name)

            return call

        self.app.task(
            name="traced", bind=True, throws=(ExpectedError,), shared=False, **{name: hook(name) for name in HOOKS}
        )(body)
        self.task = self.app.tasks["traced"]
        self.in_flight = self.app.lanes.in_flight
        self.task.__trace__ = build_tracer("traced", self.task, app=self.app)

    def request(self) -> dict[str, Any]:
        leased = Leased("7:1", "1", "q", 0, 0, False, 0.5, None, None, pack_task("traced", "(…)", b"", mine="x"))
        self.in_flight.finish_fetch([leased], clock.now_s(), suspects_wait=False)
        message = unpack(leased, clock.now_s() + 15)
        return {**message["headers"], "properties": message["properties"], "delivery_info": {}, "is_eager": False}


@FAST
@pytest.mark.parametrize("hook", [None, *HOOKS])
@pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning")
@pytest.mark.parametrize("run", RUNS)
def test_a_run_is_reported_as_by_celery(run: str, hook: str | None, recording: RunRecording) -> None:
    bench = Bench(RUNS[run], recording, failing=hook)
    tracer: Any = bench.task.__trace__.tracer
    assert tracer._is_usual
    runs = []
    for trace in (tracer._stock, tracer._trace):
        # When both tracers run the same message
        try:
            ended = trace("7:1", [3], {"plus": 4}, bench.request())
            recording.add("end", state=ended.info and ended.info.state, text=ended.retstr, timed=ended.runtime is None)
        except KeyError as error:  # a failing hook of an error
            recording.add("error", error=error)
        runs.append(recording.events)
        recording.events = []
    # Then both runs have the same events
    assert runs[0] == runs[1]


SETTLED = {"returns a value", "returns nothing", "fails", "fails as expected", "raises a BaseException"}


@pytest.mark.parametrize("is_fast", [False, pytest.param(True, marks=FAST)], ids=["stock", "fast"])
@pytest.mark.parametrize("run", RUNS)
def test_a_run_is_settled_where_celery_would_acknowledge(run: str, is_fast: bool, recording: RunRecording) -> None:
    bench = Bench(RUNS[run], recording, is_fast=is_fast)
    bench.task.__trace__("7:1", [3], {}, bench.request())
    assert len(bench.in_flight.start_fetch()) == (run in SETTLED)


@FAST
def test_a_message_without_a_lane_is_left_to_celery(recording: RunRecording) -> None:
    bench = Bench(RUNS["returns nothing"], recording)
    request = {name: value for name, value in bench.request().items() if name != "lane"}
    assert bench.task.__trace__("7:1", [3], {}, request).info is None
    assert bench.in_flight.start_fetch() == []


@FAST
def test_a_run_is_alone_without_listeners_and_links(recording: RunRecording) -> None:
    tracer: Any = Bench(RUNS["returns nothing"], recording).task.__trace__.tracer
    listeners = {signal: signal.receivers for signal in tracer_module._SIGNALS}
    with pytest.MonkeyPatch.context() as patch:
        # Given no listeners
        for signal in listeners:
            patch.setattr(signal, "receivers", [])
        # Then a run is alone, unless it has callbacks
        assert tracer.is_alone({})
        assert not tracer.is_alone({"callbacks": [{"task": "traced"}]})
        # And it is not alone with a listener of any of the signals
        for signal, receivers in listeners.items():
            with patch.context() as one:
                one.setattr(signal, "receivers", receivers)
                assert not tracer.is_alone({}), signal
