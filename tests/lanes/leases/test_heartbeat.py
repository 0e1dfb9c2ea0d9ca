"""A heartbeat that races with the end of a run: a lease that the run has released is not reported as lost."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.leases.background import Heartbeat
from celery_lanes.leases.in_flight import InFlight
from celery_lanes.leases.prefetch import Pool
from celery_lanes.leases.reports import DELAYED, GONE
from celery_lanes.protocol import Leased, NewMessage, Store, Witness, connect
from celery_lanes.runtime import clock


class StoreWithRace(Store):
    """A store in which the run ends during a renewal."""

    def __init__(self, client: Redis, ends: Any) -> None:
        super().__init__(client)
        self._ends = ends

    def renew(self, leases: Iterable[tuple[str, str]], lease_ms: int) -> list[str]:
        self._ends()
        return super().renew(leases, lease_ms)


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as connected:
        yield connected


@pytest.fixture
def in_flight() -> Iterator[InFlight]:
    made = InFlight(lease_s=15)
    made.capacity.use_pool(Pool(slots=lambda: 4, forks=True, spare=0))
    yield made
    made.channel.close()


@pytest.mark.parametrize("how", ["retried", "buried", "lost"])
def test_a_lease_that_its_run_released_is_not_lost(
    client: Redis, in_flight: InFlight, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    # Given a message that runs in a child
    store, problem = Store(client), {"type": "failed", "message": ""}
    store.append([NewMessage("m", "orders.0", "{}", ["lane"])])
    leased = store.turn(["orders.0"], holder=in_flight.holder, lease_ms=15_000, room=1).leased
    [held] = in_flight.finish_fetch(leased, clock.now_s(), suspects_wait=False)
    in_flight.claim(held.tag, starts=True)

    def end() -> None:
        if how == "retried":
            store.retry(held.id, held.fence, delay_ms=0, problem=problem)
            in_flight.channel.report(DELAYED, held.tag)
        elif how == "buried":
            store.bury(held.id, held.fence, problem)
            in_flight.channel.report(GONE, held.tag)
        else:
            store.release([(held.id, held.fence)])

    heartbeat = Heartbeat(in_flight, StoreWithRace(client, end), Witness())
    # When it ends while its lease is renewed
    with caplog.at_level(logging.WARNING):
        heartbeat.renew()
    # Then it is logged as lost only if the lease was taken from the worker
    assert ("lost the lease of m" in caplog.text) == (how == "lost")


def test_leases_are_renewed_every_third_of_a_lease(client: Redis, in_flight: InFlight) -> None:
    heartbeat = Heartbeat(in_flight, Store(client), Witness())
    begun_s = clock.now_s()
    heartbeat.renew()
    assert begun_s + 5 <= heartbeat.next_renewal_s <= clock.now_s() + 5


@pytest.mark.slow
def test_a_renewal_that_failed_is_made_again_within_a_second(in_flight: InFlight) -> None:
    heartbeat = Heartbeat(in_flight, StoreWithRace(Redis(port=1), lambda: None), Witness())
    begun_s = clock.now_s()
    in_flight.finish_fetch([Leased("m", "1", "q", 0, 0, False, 0.0, None, None, b"")], begun_s, suspects_wait=False)
    with pytest.raises(RedisError):
        heartbeat.renew()
    assert begun_s + 1 <= heartbeat.next_renewal_s <= clock.now_s() + 1
