"""One run of a leased message: what it may still do after its lease is over, in the main process and in a child."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

import pytest
from celery import Celery
from kombu import Message
from redis import Redis

from celery_lanes import Delivery, Lanes, install
from celery_lanes.embedded_server import start_server
from celery_lanes.errors import LeaseLost
from celery_lanes.leases.background import AckFlusher
from celery_lanes.leases.prefetch import Pool
from celery_lanes.protocol import NewMessage, connect, envelope, keys
from celery_lanes.runtime import clock
from celery_lanes.worker.request import LaneRequest
from tests.support.waiting import WITHIN_S, until

LEASE_MS = 60_000


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def lanes(redis_url: str) -> Iterator[Lanes]:
    with Celery("test", broker=redis_url, set_as_current=False) as app:
        yield install(app)


def handed_out(lanes: Lanes, *, starts: bool = True) -> Delivery:
    """A message that this process holds."""
    lanes.store.append([NewMessage("a", "q", "{}", ["lane"])])
    leased = lanes.store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=1).leased
    [held] = lanes.in_flight.finish_fetch(leased, clock.now_s(), suspects_wait=False)
    lanes.in_flight.claim(held.tag, starts=starts)
    return Delivery(lanes, held.tag, held.deadline_s, failed=0, died=0)


def lose(lanes: Lanes, delivery: Delivery) -> None:
    """Redis takes the lease back; this process does not know it."""
    assert lanes.store.release([(delivery.id, delivery.fence)]) == []


def received(lanes: Lanes, delivery: Delivery) -> LaneRequest:
    """The message as Celery receives it."""
    lane = {"failed": 0, "died": 0, "deadline_s": delivery.deadline_s, "waited_s": 0.0, "replayed_s": None}
    headers = {"id": "a", "task": "celery.backend_cleanup", "lang": "py", envelope.LANE: lane}
    properties = {"delivery_tag": delivery.tag, "correlation_id": "a"}
    message = Message("[[], {}, {}]", delivery_tag=delivery.tag, headers=headers, properties=properties)
    app = lanes._app
    return LaneRequest(
        message, app=app, hostname="me", task=app.tasks["celery.backend_cleanup"], decoded=True, body=([], {}, {})
    )


def test_a_check_with_an_old_fence_is_refused(lanes: Lanes) -> None:
    delivery = handed_out(lanes)
    delivery.check()
    lose(lanes, delivery)
    with pytest.raises(LeaseLost):
        delivery.check()


def test_a_check_waits_while_redis_is_away(tmp_path: Path) -> None:
    # Given a run whose Redis has ended
    folder = tmp_path / "redis"
    with start_server(folder) as server, Celery("test", broker=server.url, set_as_current=False) as app:
        lanes = install(app)
        delivery = handed_out(lanes)
        server.kill()
        # When it checks its lease, and Redis is started again
        with ThreadPoolExecutor() as pool:
            checked = pool.submit(delivery.check)
            until(lambda: delivery.is_cut_off)
            with start_server(folder, port=server.port):
                # Then it finds its lease
                checked.result(WITHIN_S)
                # And an old fence is refused as before
                lose(lanes, delivery)
                with pytest.raises(LeaseLost):
                    delivery.check()


def test_a_child_that_is_late_asks_redis_before_it_starts(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = handed_out(lanes, starts=False)
    monkeypatch.setattr(os, "getpid", lambda: 0)  # as in a forked child, which has a copy of the table
    delivery.deadline_s = clock.now_s() - 1
    delivery.start()
    lose(lanes, delivery)
    delivery.deadline_s = clock.now_s() + 60
    delivery.start()  # another process cannot have it before the deadline: no round trip
    delivery.deadline_s = clock.now_s() - 1
    with pytest.raises(LeaseLost):
        delivery.start()


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_run_that_was_lost_before_its_process_listened_does_not_start(lanes: Lanes, is_settled: bool) -> None:
    # Given a message that was handed out before this process listened for interrupts
    delivery = handed_out(lanes, starts=False)
    delivery.is_interruptible = True
    listener = lanes.interrupt_listener
    listener.start()
    until(lambda: listener._subscribed_s < inf)
    # When it was lost meanwhile, and perhaps settled by another worker
    lose(lanes, delivery)
    if is_settled:
        [other] = lanes.store.turn(["q"], holder="other", lease_ms=LEASE_MS, room=1).leased
        lanes.store.turn(["q"], holder="other", lease_ms=LEASE_MS, room=0, settles=[(other.id, other.fence)])
        assert not lanes.store.client.exists(keys.message("a"))
    # Then it does not start
    with pytest.raises(LeaseLost):
        delivery.start()
    assert delivery.is_lost()


def test_a_released_run_makes_no_further_call(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = handed_out(lanes)
    monkeypatch.setattr(os, "getpid", lambda: 0)
    delivery.journal.begin("1", "pay:1")
    delivery.release()
    with pytest.raises(LeaseLost):
        delivery.journal.begin("2", "pay:2")


def test_a_call_whose_begin_redis_refuses_is_not_made(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = handed_out(lanes)
    monkeypatch.setattr(os, "getpid", lambda: 0)
    lose(lanes, delivery)
    with pytest.raises(LeaseLost):
        delivery.journal.begin("1", "pay:1")


def test_a_run_is_sure_of_its_lease_until_its_deadline(lanes: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
    delivery = handed_out(lanes)
    assert delivery.journal.is_sure()
    later_s = delivery.deadline_s
    monkeypatch.setattr(clock, "now_s", lambda: later_s)
    assert not delivery.journal.is_sure()


def test_calls_are_numbered_in_their_series(lanes: Lanes) -> None:
    journal = handed_out(lanes).journal
    assert [journal.position(), journal.position("hook:"), journal.position()] == ["1", "hook:1", "2"]


@pytest.mark.parametrize("forks", [True, False])
def test_a_request_whose_message_was_released_is_not_passed_to_the_pool(lanes: Lanes, forks: bool) -> None:
    # A child of Celery's own pool cannot read the table, so it would run the message
    lanes.in_flight.capacity.use_pool(Pool(slots=lambda: 1, forks=forks, spare=0))
    delivery = handed_out(lanes, starts=False)
    request = received(lanes, delivery)
    assert not request.revoked()
    lanes.in_flight.release(delivery.tag)
    assert request.revoked()


@pytest.mark.parametrize("died", [True, False])
def test_a_death_is_counted_in_redis(lanes: Lanes, redis: Redis, died: bool) -> None:
    delivery = handed_out(lanes)
    lanes.in_flight.release(delivery.tag, died=died)
    AckFlusher(lanes.in_flight, lanes.store).flush()
    assert redis.hget(keys.message("a"), "died") == (b"1" if died else None)
