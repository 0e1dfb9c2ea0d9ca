"""Connections that break: nothing runs twice, nothing is forgotten, and what was on its way is handed out again.

The leases of these tests never run out: whatever a worker forgot would stay its own for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import celery
import pytest
from kombu import pools
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from tests.support.lab import Lab, LabMaker, numbered
from tests.support.waiting import until

ENDLESS = {"lease_seconds": 3600}


@pytest.fixture(autouse=True)
def no_cut_connection_is_left() -> Iterator[None]:
    """kombu keeps ours for the next test of this process, which uses the same server."""
    yield
    pools.reset()


def cut(lab: Lab) -> None:
    """Every connection but ours, as a network does that comes and goes; and all scripts, as a failover does."""
    lab.client.script_flush()
    for kind in ("normal", "pubsub"):
        lab.client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def answers(lab: Lab) -> bool:
    """Whether the worker does, to `celery inspect ping`. Our own connection was cut, too: the first one fails."""
    with suppress(RedisError, OperationalError):
        return bool(lab.app.control.inspect(timeout=2).ping())
    return False


def test_connections_cut_again_and_again_under_load(make_lab: LabMaker, pool: tuple[str, int]) -> None:
    # Given a worker in the middle of many messages
    lab = make_lab(options=ENDLESS)
    lab.publish_many(numbered(700, lambda n: [f"lane:{n % 60}"]))
    worker = lab.worker(*pool, asks_neighbours=True)
    # When all its connections are cut, and once more each time it is back at work
    for times in range(1, 4):
        until(lambda now=times: len(lab.history) >= 150 * now)
        cut(lab)
    # Then everything runs once, in order
    lab.drained()
    lab.check_once_each()
    # And it is told in a line each (by Celery since 5.7), and still says what it does
    assert "Traceback" not in worker.log or celery.VERSION < (5, 7)
    until(lambda: answers(lab))
    worker.stop()


def test_messages_lost_on_the_way_are_handed_out_again(make_lab: LabMaker) -> None:
    # Given a worker whose leases Redis remembers, two of which it has never heard of
    lab = make_lab(options=ENDLESS)
    worker = lab.worker("threads", 4)
    lab.publish("running", ["lane"], gate="open")
    lab.started("running")
    holder = lab.client.hget("lanes:message:running", "holder").decode()
    until(lambda: lab.app.control.cancel_consumer("orders.3", reply=True, timeout=5, limit=1))
    lab.publish("a", ["a"], queue="orders.3")
    lab.publish("b", ["b"], queue="orders.3")
    lab.store.turn(["orders.3"], holder=holder, lease_ms=3_600_000, room=2)
    assert set(lab.leases()) == {"running", "a", "b"}
    until(lambda: lab.app.control.add_consumer("orders.3", reply=True, timeout=5, limit=1))
    # When its connections are cut
    cut(lab)
    # Then it runs those two, and what it did run it runs on
    lab.ended("a", "b")
    lab.open("open")
    lab.drained()
    lab.check_once_each()
    worker.stop()
