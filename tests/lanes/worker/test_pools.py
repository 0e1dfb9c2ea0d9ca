"""Every pool runs the messages of each lane once, in order, and one at a time."""

from __future__ import annotations

import random

from celery_lanes.protocol import connect
from tests.lanes.monitoring.test_events import received
from tests.lanes.transport.test_ordinary_queues import ask
from tests.support.lab import Lab, numbered
from tests.support.waiting import until


def test_a_thousand_messages_run_once_and_in_order(lab: Lab, pool: tuple[str, int]) -> None:
    # Given 1,000 messages in 100 lanes, every tenth of them in two lanes
    rng = random.Random(7)
    lab.publish_many(numbered(1000, lambda n: rng.sample([f"lane:{i}" for i in range(100)], 2 if n % 10 == 0 else 1)))
    # When one worker runs them
    worker = lab.worker(*pool)
    lab.drained()
    worker.stop()
    # Then each ran once, in order, alone in its lanes; and none of their keys is left in Redis
    lab.check_once_each()
    assert lab.count("settled") == 1000
    assert lab.leases() == []
    assert not lab.client.keys("lanes:message:*") + lab.client.keys("lanes:body:*") + lab.client.keys("lanes:lane:*")


def test_the_event_of_a_quick_run_before_a_slow_one_has_its_result_and_runtime(lab: Lab) -> None:
    with connect(lab.settings["url"]) as client, client.pubsub() as listener:
        listener.psubscribe("*celeryev*")
        # Given a child that has run quick messages, of which all are settled, and runs a slow one
        for n in range(200):
            lab.publish(f"m{n}", [f"m{n}"], gate="open" if n == 150 else None)
        worker = lab.worker("prefork", 1, "-E")
        lab.started("m150")
        until(lambda: lab.state_of("m149") is None)
        for _ in range(10):
            ask(lab, worker, "ping")
        # When all have ended, Then the event of each has its result and runtime
        lab.open("open")
        lab.drained()
        worker.stop()
        events = [event for batch in received(listener) for event in batch if event["type"] == "task-succeeded"]
    assert sorted(event["uuid"] for event in events) == sorted(f"m{n}" for n in range(200))
    assert {event["result"] for event in events} == {"None"}
    assert all(event["runtime"] > 0 for event in events)
