"""Task events are sent while there are listeners, grouped and in order, and none is lost at shutdown."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
from celery import Celery
from redis.client import PubSub

import celery_lanes as lanes
from celery_lanes.embedded_server import start_server
from celery_lanes.monitoring.events import QUIET_AFTER, GatherEvents
from celery_lanes.protocol import connect
from tests.support.waiting import until

SENDERS, EACH = 8, 50


def test_events_are_sent_in_groups_and_in_order(redis_url: str) -> None:
    # Given a consumer without an event loop, and a listener
    with consumer_of(redis_url) as consumer, connect(redis_url) as client, client.pubsub() as listener:
        listener.psubscribe("*celeryev*")
        step = GatherEvents(consumer)
        step.start(consumer)
        # When several threads send events, and the worker shuts down
        with ThreadPoolExecutor(SENDERS) as threads:
            list(threads.map(lambda sender: send(consumer.event_dispatcher, sender), range(SENDERS)))
        step.shutdown(consumer)
        # Then the listener has received all events, those of each thread in order, in few messages
        messages = received(listener)
    events = [event for message in messages for event in message]
    for sender in range(SENDERS):
        assert [event["number"] for event in events if event["uuid"] == str(sender)] == list(range(EACH))
    assert len(events) == SENDERS * EACH
    assert len(messages) < len(events) / 2


def test_events_are_sent_before_shutdown(redis_url: str) -> None:
    with consumer_of(redis_url) as consumer, connect(redis_url) as client, client.pubsub() as listener:
        listener.psubscribe("*celeryev*")
        step = GatherEvents(consumer)
        step.start(consumer)
        consumer.event_dispatcher.send("task-received", uuid="1")
        until(lambda: received(listener))
        step.shutdown(consumer)


def test_events_are_sent_while_there_are_listeners(redis_url: str) -> None:
    # Given a worker whose only listener is another worker, which receives only heartbeats
    with consumer_of(redis_url, groups=["worker"]) as consumer, connect(redis_url) as client:
        dispatcher = consumer.event_dispatcher
        with client.pubsub() as gossip, client.pubsub() as listener:
            gossip.psubscribe("*celeryev/worker.*")
            assert [sends_task_events(dispatcher) for _ in range(3)] == [False] * 3
            # When a listener subscribes, then the worker sends task events from its next heartbeat on
            listener.psubscribe("*celeryev*")
            assert received(listener) == []
            assert sends_task_events(dispatcher)
            # And the message that counts the listeners contains no event
            assert [[event["type"] for event in batch] for batch in received(listener)] == [["worker-heartbeat"], []]
        # When there are no more listeners, then it stops, but not at once: a listener may reconnect
        sends = [sends_task_events(dispatcher) for _ in range(5)]
        assert sends == [True] * (QUIET_AFTER - 1) + [False] * (6 - QUIET_AFTER)


def test_events_start_when_a_listener_requests_a_heartbeat(redis_url: str) -> None:
    """Celery's Receiver requests a heartbeat just before it subscribes."""
    with consumer_of(redis_url, groups=["worker"]) as consumer:
        dispatcher = consumer.event_dispatcher
        dispatcher.send("worker-heartbeat", freq=5)
        assert dispatcher.groups == {"worker", "task"}
        assert [sends_task_events(dispatcher) for _ in range(3)] == [True] * (QUIET_AFTER - 1) + [False]


def test_disabled_events_stay_off_until_listeners_change(redis_url: str) -> None:
    with consumer_of(redis_url, groups=["worker"]) as consumer, connect(redis_url) as client:
        dispatcher = consumer.event_dispatcher
        with client.pubsub() as listener:
            listener.psubscribe("*celeryev*")
            assert sends_task_events(dispatcher)
            dispatcher.groups.discard("task")  # `celery control disable_events`
            assert not sends_task_events(dispatcher)
            with client.pubsub() as another:
                another.psubscribe("*celeryev*")
                assert sends_task_events(dispatcher)


def test_events_are_always_sent_with_the_celery_option(redis_url: str) -> None:
    with consumer_of(redis_url) as consumer:  # -E
        assert [sends_task_events(consumer.event_dispatcher) for _ in range(4)] == [True] * 4
        assert consumer.event_dispatcher.groups == set()


def test_a_heartbeat_does_not_block_without_redis(tmp_path: Path) -> None:
    with (
        ThreadPoolExecutor(1) as thread,
        start_server(tmp_path) as server,
        consumer_of(server.url, groups=["worker"]) as consumer,
    ):
        dispatcher = consumer.event_dispatcher
        sends_task_events(dispatcher)
        server.kill()
        # When Celery's Heart sends a heartbeat with retry=True
        thread.submit(dispatcher.send, "worker-heartbeat", active=0, retry=True).result(60)
        # Then the call returns, and the heartbeat is sent when Redis is back
        with (
            start_server(tmp_path, port=server.port) as back,
            connect(back.url) as client,
            client.pubsub() as listener,
        ):
            listener.psubscribe("*celeryev*")
            assert received(listener) == []
            dispatcher.flush()
            assert [event["type"] for batch in received(listener) for event in batch] == ["worker-heartbeat"]


@contextmanager
def consumer_of(url: str, groups: list[str] | None = None) -> Iterator[Any]:
    """The attributes of a consumer that GatherEvents uses."""
    app = Celery("events", broker=url, set_as_current=False)
    lanes.install(app)
    with app.connection_for_write() as connection:
        dispatcher = app.events.Dispatcher(connection, hostname="w", groups=groups)
        yield SimpleNamespace(app=app, event_dispatcher=dispatcher)


def sends_task_events(dispatcher: Any) -> bool:
    """Send a heartbeat; then, true if the dispatcher sends task events."""
    dispatcher.send("worker-heartbeat", active=0)
    return not dispatcher.groups or "task" in dispatcher.groups


def received(listener: PubSub) -> list[list[dict[str, Any]]]:
    """The events of each received message."""
    found = []
    while (message := listener.get_message(timeout=0.2)) is not None:
        if message["type"] == "pmessage":
            events = orjson.loads(b64decode(orjson.loads(message["data"])["body"]))
            found.append(events if isinstance(events, list) else [events])
    return found


def send(dispatcher: Any, sender: int) -> None:
    for number in range(EACH):
        dispatcher.send("task-received", uuid=str(sender), number=number)
