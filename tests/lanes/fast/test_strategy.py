"""Our receipt of a message, compared with Celery's: the request has the same attributes, events, logs and signals."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, signals
from celery.worker import state
from celery.worker.strategy import default
from kombu.transport.virtual import Message
from kombu.utils import json as kombu_json

import celery_lanes as lanes
from celery_lanes.fast.strategy import FastRequest, ReceiveFast
from celery_lanes.leases import background
from celery_lanes.leases.prefetch import Pool
from celery_lanes.protocol import Leased
from celery_lanes.protocol.envelope import pack_task
from celery_lanes.runtime import clock
from celery_lanes.transport.fetch import unpack

pytestmark = pytest.mark.fast("strategy")

ATTRIBUTES = (
    "id name type root_id parent_id args kwargs argsrepr kwargsrepr eta expires delivery_info hostname time_limits "
    "ignore_result store_errors utc task_id task_name reply_to correlation_id replaced_task_nesting groups "
    "stamped_headers stamps group group_index chord errbacks acknowledged time_start worker_pid request_dict"
)

PLAIN: dict[str, dict[str, Any]] = {
    "plain": {},
    "with options": {"mine": "x", "shadow": "known as", "timelimit": [60, 30], "ignore_result": True},
    "retried": {"retries": 2, "parent_id": "p", "root_id": "r", "group": "g", "group_index": 3},
}
CELERYS: dict[str, dict[str, Any]] = {
    "expires": {"expires": "2100-01-01T00:00:00+00:00"},
    "stamped": {"stamped_headers": ["mine"], "stamps": {"mine": "x"}},
}


def _received(*args: Any, **kwargs: Any) -> None: ...


class Consumer(SimpleNamespace):
    """A consumer; hashable, because it is the sender of signals."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Received:
    """The effects of one strategy for a message."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.events: list[Any] = []
        self.logged: list[Any] = []
        self.signalled: list[str] = []


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[Celery]:
    monkeypatch.setattr(background, "_tables", {})
    monkeypatch.setattr(logging.getLogger("celery.worker.strategy"), "level", logging.INFO)
    app = Celery("received", broker="redis://127.0.0.1:1/0", set_as_current=False)
    lanes.install(app)
    app.task(name="received", shared=False)(_received)
    app.lanes.in_flight.capacity.use_pool(Pool(slots=lambda: 1, forks=False, spare=0))
    yield app
    app.lanes.in_flight.channel.close()
    state.reset_state()


def by_celery(app: Celery, consumer: Any) -> Any:
    handler = default(app.tasks["received"], app, consumer)
    return lambda message: handler(message, None, lambda *_: None, lambda *_: None, [])


def by_lanes(app: Celery, consumer: Any) -> Any:
    consumer.update_strategies, consumer.create_task_handler = lambda: None, lambda: by_celery(app, consumer)
    ReceiveFast(consumer)
    consumer.update_strategies()
    return consumer.create_task_handler()


def receive(app: Celery, make: Any, headers: dict[str, Any], body: str) -> Received:
    received = Received()
    dispatcher = SimpleNamespace(
        enabled=True, sends_task_events=True, send=lambda *args, **fields: received.events.append((args, fields))
    )
    consumer = Consumer(
        hostname="w@h", connection_errors=(OSError,), event_dispatcher=dispatcher, disable_rate_limits=True,
        timer=SimpleNamespace(call_at=None), apply_eta_task=None, task_buckets={}, _limit_task=None,
        _limit_post_eta=None, pool=SimpleNamespace(apply_async=None), controller=SimpleNamespace(state=state),
        on_task_request=received.requests.append, call_soon_ack=lambda *_: None, app=app, on_task_message=[],
    )  # fmt: skip
    stored = pack_task("received", "(…)", body.encode(), **headers)
    leased = Leased("7:1", "5", "orders.0", 0, 1, False, 0.5, None, None, stored)
    app.lanes.in_flight.finish_fetch([leased], clock.now_s(), suspects_wait=False)
    message = Message(unpack(leased, clock.now_s() + 15), SimpleNamespace(decode_body=lambda body, encoding: body))

    def signalled(sender: Any, request: Any, **_: Any) -> None:
        received.signalled.append(request.id)

    def logged(record: logging.LogRecord) -> bool:
        received.logged.append((record.levelname, record.getMessage(), record.__dict__.get("data")))
        return False

    logger = logging.getLogger("celery.worker.strategy")
    logger.addFilter(logged)
    signals.task_received.connect(signalled)
    try:
        make(app, consumer)(message)
    finally:
        signals.task_received.disconnect(signalled)
        logger.removeFilter(logged)
    return received


def described(request: Any) -> dict[str, Any]:
    attributes = {name: getattr(request, name) for name in ATTRIBUTES.split()}
    # The lane header differs, because the message was handed out twice.
    attributes["request_dict"] = {name: each for name, each in attributes["request_dict"].items() if name != "lane"}
    texts = {"info": request.info(), "safe": request.info(safe=True), "human": request.humaninfo(), "str": str(request)}
    context = {name: each for name, each in vars(request._context).items() if name not in ("lane", "headers")}
    return {**attributes, **texts, "context": context, "runs": (request.task.name, request.content_type is None)}


@pytest.mark.parametrize("kind", PLAIN)
def test_a_request_equals_celerys(app: Celery, kind: str) -> None:
    body = kombu_json.dumps(
        [[{"n": 1}, "ü"], {"k": None}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    )
    stock, fast = (receive(app, make, PLAIN[kind], body) for make in (by_celery, by_lanes))
    [expected], [request] = stock.requests, fast.requests
    assert isinstance(request, FastRequest)
    assert {**described(request), "runs": None} == {**described(expected), "runs": None}
    assert (fast.events, fast.logged, fast.signalled) == (stock.events, stock.logged, stock.signalled)
    assert state.requests["7:1"] is request
    assert request in state.reserved_requests


@pytest.mark.parametrize("kind", CELERYS)
def test_messages_with_options_are_left_to_celery(app: Celery, kind: str) -> None:
    [request] = receive(app, by_lanes, CELERYS[kind], "[[], {}, {}]").requests
    assert not isinstance(request, FastRequest)


def test_other_encodings_are_left_to_celery(app: Celery) -> None:
    body = kombu_json.dumps([[b"\xff", 2**70], {}, {}])
    [request] = receive(app, by_lanes, {}, body).requests
    assert not isinstance(request, FastRequest)
    assert request.args == [b"\xff", 2**70]


def test_a_custom_request_class_is_kept(app: Celery) -> None:
    task = app.tasks["received"]
    task.Request = "celery.worker.request:Request"
    [request] = receive(app, by_lanes, {}, "[[], {}, {}]").requests
    assert not isinstance(request, FastRequest)
