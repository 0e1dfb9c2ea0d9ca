"""An event loop that is blocked by a slow message, and one whose connection is closed."""

from __future__ import annotations

import pytest
from kombu import Consumer
from redis.exceptions import ConnectionError  # noqa: A004 - redis-py's word

from celery_lanes.leases.prefetch import Pool
from tests.support.lab import Lab, LabMaker, numbered
from tests.support.waiting import until


def test_a_loop_notices_that_an_idle_connection_closed(lab: Lab) -> None:
    lab.app.lanes.in_flight.capacity.use_pool(Pool(slots=lambda: 2, forks=False, spare=15))
    queue = next(queue for queue in lab.app.conf.task_queues if queue.name == "orders.0")
    with lab.app.connection_for_read() as connection, connection.channel() as channel:
        Consumer(channel, queues=[queue], callbacks=[lambda *_: None]).consume()
        # Given a fetch whose reply was read
        channel.fetch_loop.step()
        fetch_connection = channel.fetch_loop._fetch
        until(lambda: fetch_connection.has_answer(within_s=0))
        channel.fetch_loop.handlers["FETCH"]()
        assert not fetch_connection.is_waiting
        # When the server closes the connection
        address, port = fetch_connection.client.connection._sock.getsockname()
        lab.client.client_kill_filter(addr=f"{address}:{port}")
        # Then a read raises once the close has arrived, so that the loop does not poll the closed socket forever
        with pytest.raises(ConnectionError):
            until(channel.fetch_loop.handlers["FETCH"])


def test_an_idle_worker_takes_messages_behind_a_slow_one(make_lab: LabMaker) -> None:
    # Given a backlog of quick messages with slow ones in it, and workers that run messages on their loop's thread
    lab = make_lab(options={"lease_seconds": 600})
    slow = [f"slow:{n}" for n in range(3)]
    quick = numbered(400, lambda n: [f"quick:{n}"])
    names = list(quick)
    for n, name in enumerate(slow):
        lab.publish_many({each: quick[each] for each in names[n * 100 : (n + 1) * 100]})
        lab.publish_many({name: [name]}, gate="open")
    lab.publish_many({each: quick[each] for each in names[300:]})
    for _ in slow:
        lab.worker("solo", 1, is_awaited=False)
    # When each of them is blocked by a slow message
    lab.started(*slow)
    # Then another worker runs all others, although the leases are long
    lab.worker("threads", 4)
    lab.ended(*quick)
    until(lambda: set(lab.leases()) == set(slow))
    lab.open("open")
    lab.drained()
    lab.check_once_each()
