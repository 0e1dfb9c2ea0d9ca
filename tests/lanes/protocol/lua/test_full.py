"""A full Redis refuses appends, and allows every verb that finishes or moves messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from celery_lanes.protocol import Fate, Kind, NewMessage, Outcome, Set, Store
from celery_lanes.protocol.verbs import begin, end

MINUTE_MS = 60_000


@pytest.fixture
def full(client: Redis) -> Iterator[Store]:
    """A store with messages m0 to m6, each in its own lane, on a Redis without free memory."""
    store = Store(client)
    store.append([message(number) for number in range(7)])
    for each in (store.sweep, lambda _: store.renew([], 1), lambda _: store.reconcile("none", [])):
        each(MINUTE_MS)  # to load the scripts
    store.release([("none", "1")])
    store.retry("none", "1", delay_ms=0, problem={})
    store.park("none", "1", delay_ms=0)
    store.bury("none", "1", {})
    store.commit("none", "1")
    store.turn([], holder="w", lease_ms=MINUTE_MS, room=0)
    client.config_set("maxmemory", 1)
    try:
        yield store
    finally:
        client.config_set("maxmemory", 0)


def message(number: int) -> NewMessage:
    return NewMessage(f"m{number}", "q", "{}", [f"lane:{number}"])


def test_a_full_redis_refuses_appends_and_finishes_the_rest(full: Store) -> None:
    with pytest.raises(ResponseError, match="used memory"):
        full.append([message(9)])
    turned = full.turn(["q"], holder="w", lease_ms=MINUTE_MS, room=7)
    assert len(turned.leased) == 7
    leases = [(leased.id, leased.fence) for leased in turned.leased]
    assert full.renew(leases, MINUTE_MS) == []
    check_calls(full, leases[0])
    settled, retried, parked, buried, released, reconciled, committed = leases
    assert full.turn([], holder="w", lease_ms=MINUTE_MS, room=0, settles=[settled]).lost == []
    assert full.turn([], holder="w", lease_ms=MINUTE_MS, room=0, settles=[settled]).lost == [settled[0]]
    assert full.retry(*retried, delay_ms=0, problem={}) is Outcome.DONE
    assert full.park(*parked, delay_ms=0) is Outcome.DONE
    assert full.bury(*buried, {}) is Outcome.DONE
    assert full.commit(*committed, [Set("k", b"v")]) is Outcome.DONE
    assert full.release([released]) == []
    assert full.reconcile("w", []) == 1
    assert full.sweep(MINUTE_MS).due == 2
    assert full.pending() == 4
    again = full.turn(["q"], holder="w", lease_ms=MINUTE_MS, room=5)
    assert {leased.id for leased in again.leased} == {retried[0], parked[0], released[0], reconciled[0]}


def check_calls(full: Store, lease: tuple[str, str]) -> None:
    """A handler can make calls, also in a process that has not used this server before."""
    store = Store(full.client)
    first = begin(*lease, lease_ms=MINUTE_MS, position="1", what="x")
    then = end(*lease, position="1", what="x", kind=Kind.DONE, outcome=b"y")
    assert store.ask(first, then, first) == [[b"begun"], 1, [b"done", b"y"]]
    assert store.send_unawaited(then).fate is Fate.UNDER_WAY
    store.close()
