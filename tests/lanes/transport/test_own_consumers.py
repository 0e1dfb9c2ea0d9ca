"""Lane queues without a Celery worker: `queue.get()` and kombu consumers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Queue
from kombu.transport import redis
from redis.client import Pipeline

import celery_lanes as lanes
from tests.support.lab import Lab
from tests.support.lab_app import LANE_QUEUES
from tests.support.waiting import until

QUEUE = LANE_QUEUES[0]


@pytest.fixture
def connection(lab: Lab) -> Iterator[Connection]:
    """A connection in this process, whose background thread ends with the lab."""
    with lab.app.connection_for_read() as opened:
        yield opened


def drain(connection: Connection, received: list[Any], count: int) -> None:
    """Drain events until `count` messages have arrived."""

    def have_arrived() -> bool:
        if len(received) < count:
            try:
                connection.drain_events(timeout=0.1)
            except TimeoutError:
                return False
        return len(received) >= count

    until(have_arrived)


def test_get_holds_the_lane_until_acknowledged(lab: Lab, connection: Connection) -> None:
    lab.publish("first", ["lane"])
    lab.publish("second", ["lane"])
    queue = lab.app.amqp.queues[QUEUE].bind(connection.default_channel)
    queue.declare()
    first = queue.get()
    assert first.headers["id"] == "first"
    assert queue.get() is None
    first.ack()
    until(lambda: lab.state_of("second") == "ready")
    second = queue.get()
    assert second.headers["id"] == "second"
    second.reject(requeue=True)
    until(lambda: lab.state_of("second") == "ready")
    again = queue.get()
    assert again.headers["id"] == "second"
    again.reject(requeue=False)
    until(lambda: lab.dead() == ["second"])
    assert lab.leases() == []


def test_a_consumer_gets_as_many_as_its_prefetch_allows(lab: Lab, connection: Connection) -> None:
    lab.publish_many({f"m{n}": ["lane:1" if n < 2 else f"lane:{n}"] for n in range(5)})
    received: list[Any] = []
    queues = [lab.app.amqp.queues[name] for name in LANE_QUEUES]
    with Consumer(connection.default_channel, queues, on_message=received.append, prefetch_count=2):
        drain(connection, received, 2)
        assert len(lab.leases()) == 2
        while len(received) < 5:
            next(message for message in received if not message.acknowledged).ack()
            drain(connection, received, len(received) + 1)
        for message in received:
            if not message.acknowledged:
                message.ack()
    lab.drained()
    order = [message.headers["id"] for message in received]
    assert sorted(order) == sorted(lab.lanes)
    assert order.index("m0") < order.index("m1")


def test_unlimited_prefetch_is_refused(lab: Lab, connection: Connection) -> None:
    lab.publish("m", ["lane"])
    with (
        Consumer(connection.default_channel, [lab.app.amqp.queues[QUEUE]], on_message=print),
        pytest.raises(lanes.Misconfigured, match="prefetch count"),
    ):
        connection.drain_events(timeout=1)
    assert lab.state_of("m") == "ready"


@pytest.mark.skipif(not hasattr(redis.Channel, "maybe_refresh_binding_expiry"), reason="kombu refreshes them since 5.7")
def test_a_failover_during_a_binding_refresh_is_not_logged(
    lab: Lab, connection: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a queue that expires without consumers, and whose bindings were lost
    queue = Queue("queue", Exchange("exchange"), routing_key="a", expires=60)
    bindings = b"_kombu.binding.exchange"
    with Consumer(connection, [queue]):
        until(lambda: lab.client.exists(bindings))
        lab.client.delete(bindings)
        # When Redis loses all scripts just after kombu has loaded them
        load = Pipeline.load_scripts

        def load_and_flush(pipeline: Any) -> None:
            load(pipeline)
            lab.client.script_flush()

        with monkeypatch.context() as patch:
            patch.setattr(Pipeline, "load_scripts", load_and_flush)
            connection.default_channel.connection.cycle.maybe_refresh_binding_expiry()
        # Then nothing is logged, and the next refresh succeeds
        assert not lab.client.exists(bindings)
        assert caplog.text == ""
        connection.default_channel.connection.cycle.maybe_refresh_binding_expiry()
        assert lab.client.exists(bindings)
