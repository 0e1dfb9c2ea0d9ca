"""Task events: they are told while somebody listens, go out together and in order, and none stays behind."""

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

from chatlanes import lanes
from chatlanes.lanes.monitoring.events import QUIET_AFTER, GatherEvents
from chatlanes.lanes.protocol.connect import connect
from chatlanes.sandbox.server import start_server
from tests.support.waiting import until

SENDERS, EACH = 8, 50


def test_events_go_out_together_and_in_order(redis_url: str) -> None:
    # Given a consumer without an event loop, and somebody who listens
    with consumer_of(redis_url) as consumer, connect(redis_url) as client, client.pubsub() as heard:
        heard.psubscribe("*celeryev*")
        step = GatherEvents(consumer)
        step.start(consumer)
        # When several threads send, and the worker leaves
        with ThreadPoolExecutor(SENDERS) as threads:
            list(threads.map(lambda sender: send(consumer.event_dispatcher, sender), range(SENDERS)))
        step.shutdown(consumer)
        # Then all of them have been heard, those of each thread in order, in few messages
        messages = all_of(heard)
    events = [event for message in messages for event in message]
    for sender in range(SENDERS):
        assert [event["number"] for event in events if event["uuid"] == str(sender)] == list(range(EACH))
    assert len(events) == SENDERS * EACH
    assert len(messages) < len(events) / 2


def test_events_go_out_without_anybody_leaving(redis_url: str) -> None:
    with consumer_of(redis_url) as consumer, connect(redis_url) as client, client.pubsub() as heard:
        heard.psubscribe("*celeryev*")
        step = GatherEvents(consumer)
        step.start(consumer)
        consumer.event_dispatcher.send("task-received", uuid="1")
        until(lambda: all_of(heard))
        step.shutdown(consumer)


def test_events_are_sent_while_there_are_listeners(redis_url: str) -> None:
    # Given a worker that nobody listens to but another worker, which hears heartbeats and no more
    with consumer_of(redis_url, groups=["worker"]) as consumer, connect(redis_url) as client:
        dispatcher = consumer.event_dispatcher
        with client.pubsub() as gossip, client.pubsub() as heard:
            gossip.psubscribe("*celeryev/worker.*")
            assert [tells(dispatcher) for _ in range(3)] == [False] * 3
            # When somebody begins to listen, then it tells of tasks from its next heartbeat on
            heard.psubscribe("*celeryev*")
            assert all_of(heard) == []
            assert tells(dispatcher)
            # And the question itself is no event
            assert [[event["type"] for event in batch] for batch in all_of(heard)] == [["worker-heartbeat"], []]
        # When nobody does any more, then it ends, but not at once: who lost its connection may come back
        assert [tells(dispatcher) for _ in range(5)] == [True] * (QUIET_AFTER - 1) + [False] * (6 - QUIET_AFTER)


def test_events_start_when_a_listener_announces_itself(redis_url: str) -> None:
    """Celery's Receiver asks for a heartbeat, just before it subscribes."""
    with consumer_of(redis_url, groups=["worker"]) as consumer:
        dispatcher = consumer.event_dispatcher
        dispatcher.send("worker-heartbeat", freq=5)
        assert dispatcher.groups == {"worker", "task"}
        assert [tells(dispatcher) for _ in range(3)] == [True] * (QUIET_AFTER - 1) + [False]


def test_disabled_events_stay_off_until_listeners_change(redis_url: str) -> None:
    with consumer_of(redis_url, groups=["worker"]) as consumer, connect(redis_url) as client:
        dispatcher = consumer.event_dispatcher
        with client.pubsub() as heard:
            heard.psubscribe("*celeryev*")
            assert tells(dispatcher)
            dispatcher.groups.discard("task")  # `celery control disable_events`
            assert not tells(dispatcher)
            with client.pubsub() as another:
                another.psubscribe("*celeryev*")
                assert tells(dispatcher)


def test_events_are_always_sent_with_the_celery_option(redis_url: str) -> None:
    with consumer_of(redis_url) as consumer:  # -E
        assert [tells(consumer.event_dispatcher) for _ in range(4)] == [True] * 4
        assert consumer.event_dispatcher.groups == set()


def test_a_heartbeat_does_not_block_without_redis(tmp_path: Path) -> None:
    with (
        ThreadPoolExecutor(1) as thread,
        start_server(tmp_path) as server,
        consumer_of(server.url, groups=["worker"]) as consumer,
    ):
        dispatcher = consumer.event_dispatcher
        tells(dispatcher)
        server.kill()
        # When Celery's Heart sends one, again and again until it is sent, as it says
        thread.submit(dispatcher.send, "worker-heartbeat", active=0, retry=True).result(60)
        # Then it is sent when Redis is back
        with (
            start_server(tmp_path, port=server.port) as back,
            connect(back.url) as client,
            client.pubsub() as heard,
        ):
            heard.psubscribe("*celeryev*")
            assert all_of(heard) == []
            dispatcher.flush()
            assert [event["type"] for batch in all_of(heard) for event in batch] == ["worker-heartbeat"]


@contextmanager
def consumer_of(url: str, groups: list[str] | None = None) -> Iterator[Any]:
    """What the step needs of one."""
    app = Celery("events", broker=url, set_as_current=False)
    lanes.install(app)
    with app.connection_for_write() as connection:
        dispatcher = app.events.Dispatcher(connection, hostname="w", groups=groups)
        yield SimpleNamespace(app=app, event_dispatcher=dispatcher)


def tells(dispatcher: Any) -> bool:
    """Whether it tells of tasks, after a heartbeat."""
    dispatcher.send("worker-heartbeat", active=0)
    return not dispatcher.groups or "task" in dispatcher.groups


def all_of(heard: PubSub) -> list[list[dict[str, Any]]]:
    """The events of each message that has come."""
    found = []
    while (message := heard.get_message(timeout=0.2)) is not None:
        if message["type"] == "pmessage":
            events = orjson.loads(b64decode(orjson.loads(message["data"])["body"]))
            found.append(events if isinstance(events, list) else [events])
    return found


def send(dispatcher: Any, sender: int) -> None:
    for number in range(EACH):
        dispatcher.send("task-received", uuid=str(sender), number=number)
