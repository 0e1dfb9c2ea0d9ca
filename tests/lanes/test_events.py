"""Task events of a worker without an event loop: they go out together, in order, and none stays behind."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from celery import Celery
from redis.client import PubSub

from tasks.lanes.connect import connect
from tasks.lanes.events import GatherEvents
from tests.poller.waiting import until

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


@pytest.mark.parametrize("hub", [object(), None])
def test_an_event_loop_gathers_them_itself(redis_url: str, hub: Any) -> None:
    with consumer_of(redis_url) as consumer:
        consumer.hub = hub
        step = GatherEvents(consumer)
        step.start(consumer)
        assert bool(consumer.event_dispatcher.buffer_group) == (hub is None)
        step.shutdown(consumer)


@contextmanager
def consumer_of(url: str) -> Iterator[Any]:
    """What the step needs of one."""
    app = Celery("events", broker=url, set_as_current=False)
    with app.connection_for_write() as connection:
        yield SimpleNamespace(hub=None, app=app, event_dispatcher=app.events.Dispatcher(connection, hostname="w"))


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
