"""Lost connections: no message runs twice or is lost, and messages in a lost reply are handed out again.

The leases of these tests do not expire, so that a message that a worker lost track of would stay leased.
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
def reset_pools() -> Iterator[None]:
    """kombu would reuse the closed connections in the next test of this process, which uses the same server."""
    yield
    pools.reset()


def cut(lab: Lab) -> None:
    """Close every other connection, as an unreliable network does, and flush all scripts, as a failover does."""
    lab.client.script_flush()
    for kind in ("normal", "pubsub"):
        lab.client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def replies_to_ping(lab: Lab) -> bool:
    """True if the worker replies to `celery inspect ping`. Our own connection is closed, too: the first call fails."""
    with suppress(RedisError, OperationalError):
        return bool(lab.app.control.inspect(timeout=2).ping())
    return False


def test_connections_are_cut_repeatedly_under_load(make_lab: LabMaker, pool: tuple[str, int]) -> None:
    # Given a worker in the middle of many messages
    lab = make_lab(options=ENDLESS)
    lab.publish_many(numbered(700, lambda n: [f"lane:{n % 60}"]))
    worker = lab.worker(*pool, mingles=True)
    # When all its connections are cut, and again each time after it has continued
    for times in range(1, 4):
        until(lambda now=times: len(lab.history) >= 150 * now)
        cut(lab)
    # Then everything runs once, in order
    lab.drained()
    lab.check_once_each()
    # And each loss is logged in a single line (by Celery since 5.7), and the worker still replies to remote control
    assert "Traceback" not in worker.log or celery.VERSION < (5, 7)
    until(lambda: replies_to_ping(lab))
    worker.stop()


def test_messages_of_a_lost_reply_are_handed_out_again(make_lab: LabMaker) -> None:
    # Given a worker with three leases in Redis, two of which it has never received
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
    # Then it runs these two, and the running one continues
    lab.ended("a", "b")
    lab.open("open")
    lab.drained()
    lab.check_once_each()
    worker.stop()
