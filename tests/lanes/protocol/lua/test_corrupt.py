"""Corrupt values in Redis: the message is buried, the total or the timer is left out, and everything else continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Fetched, Group, NewMessage, Store, keys

LEASE_MS = 60_000
CORRUPT = ["zz", "", "1.5", b"\xff"]
GROUP = Group("g", quiet_ms=10_000, max_wait_ms=20_000, most=5, interrupts=True)
PROBLEM = {"type": "E", "message": "m"}
A, B, C, D = "1:10", "1:11", "1:12", "1:13"


def message(id_: str, *lanes: str, group: Group | None = None, number: int | None = None) -> NewMessage:
    once = None if number is None else ("scope", number)
    return NewMessage(id_, "q", b'{"headers":{}}\n[[1],{},{}]', lanes, once=once, group=group)


def turn(store: Store, room: int = 10) -> Fetched:
    return store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=room)


def all_handed_out(store: Store) -> set[str]:
    """The ids of all messages that are handed out, each of which is settled."""
    ids: set[str] = set()
    while leased := turn(store).leased:
        ids |= {each.id for each in leased}
        store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(each.id, each.fence) for each in leased])
    return ids


def repair(store: Store) -> None:
    for _ in range(3):
        cursor, _ = store.repair("0", LEASE_MS)
        while cursor != "0":
            cursor, _ = store.repair(cursor, LEASE_MS)


def expire(client: Redis, store: Store, id_: str, fence: str) -> None:
    client.zadd(keys.LEASES, {id_: 1})
    store.sweep(LEASE_MS)


def release(client: Redis, store: Store, id_: str, fence: str) -> None:
    store.release([(id_, fence)], died=True)


def retry(client: Redis, store: Store, id_: str, fence: str) -> None:
    store.retry(id_, fence, delay_ms=0, problem=PROBLEM)
    store.sweep(LEASE_MS)


def park(client: Redis, store: Store, id_: str, fence: str) -> None:
    store.park(id_, fence, delay_ms=0)
    store.sweep(LEASE_MS)


@pytest.mark.parametrize("value", ["zz", "", b"\xff"])
@pytest.mark.parametrize("field", ["died", "failed", "interrupted", "replayed", "alive", "seq"])
@pytest.mark.parametrize("end", [expire, release, retry, park])
def test_a_message_with_a_corrupt_number_is_buried(
    client: Redis, store: Store, end: Callable[..., None], field: str, value: str | bytes
) -> None:
    # Given a message that runs, with a number that cannot be read, one behind it and one beside it
    store.append([message(A, "a"), message(B, "a"), message(C, "c")])
    [leased] = turn(store, room=1).leased
    client.hset(keys.message(A), field, value)
    # When its run ends in any way
    end(client, store, A, leased.fence)
    # Then the others run, and it is buried, unless this end has written the number again
    ran = all_handed_out(store)
    assert {B, C} <= ran
    assert set(inspection.dead(client)) == {A} - ran
    assert A not in ran or field == "alive"
    assert [record.id for record in inspection.records(client, [A, B, C])] == list({A} - ran)


@pytest.mark.parametrize("value", CORRUPT)
@pytest.mark.parametrize(
    "name", ["seq", "appended", "settled", "handed_out", "held", "collected", "fired", "scheduled", "expired"]
)
def test_a_corrupt_total_stops_nothing(client: Redis, store: Store, name: str, value: str | bytes) -> None:
    store.append([message(A, "a"), message(B, "b", group=GROUP)])
    client.hset(keys.COUNTS, name, value)
    client.hset(keys.SETTLED, "q", value)
    store.append([message(C, "c"), message("1:20", "b", group=GROUP), message("1:30", "h", number=7)], hold_ms=1)
    store.schedule(message(D, "d"), "owner", "name", at_ms=1)
    store.sweep(LEASE_MS)
    client.zadd(keys.COLLECTING, {B: 1}, xx=True)
    assert {A, B, C, D} <= all_handed_out(store)
    assert inspection.counts(client)["settled"] > 0
    assert store.look().pending >= 0


@pytest.mark.parametrize("value", CORRUPT)
@pytest.mark.parametrize("field", ["seq", "size", "open"])
def test_a_group_with_a_corrupt_number_takes_no_append_down(
    client: Redis, store: Store, field: str, value: str | bytes
) -> None:
    store.append([message(A, "a", group=GROUP)])
    client.hset(keys.message(A), field, value)
    store.append([message(B, "a", group=GROUP), message(C, "c")])
    assert C in all_handed_out(store)


@pytest.mark.parametrize("value", CORRUPT)
def test_a_held_message_with_a_corrupt_group_or_entry_joins_its_lane(
    client: Redis, store: Store, value: str | bytes
) -> None:
    # Given a message that waits for a lower number
    store.append([message("1:1", number=1), message(A, "a", number=3)], hold_ms=60_000)
    client.hset(keys.message(A), "group", value)
    # When its time is over, beside an entry that cannot be read
    client.zadd(keys.HELD, {"scope:3": 1, value: 1})
    store.sweep(LEASE_MS)
    # Then it runs
    assert A in all_handed_out(store)
    assert client.zcard(keys.HELD) == 0


@pytest.mark.parametrize("value", ["zz", "1.5", b"\xff"])
def test_corrupt_timers_stop_no_others(client: Redis, store: Store, value: str | bytes) -> None:
    # Given timers of two owners, and an entry that cannot be read in each key of timers
    store.schedule(message(A, "a"), "spoilt", "name", in_ms=LEASE_MS)
    store.schedule(message(B, "b"), "other", "name", in_ms=LEASE_MS)
    client.set(keys.TIMER + "spoilt", value)
    client.hset(keys.OVERFLOW + "spoilt", "more", value)
    client.zadd(keys.TIMERS, {value: 1, "spoilt\nmore": 1})
    # When the timers are listed, repaired and due
    assert [timer.id for timer in store.next_timers()] == [B]
    repair(store)
    client.zadd(keys.TIMERS, dict.fromkeys(client.zrange(keys.TIMERS, 0, -1), 1))
    store.sweep(LEASE_MS)
    # Then the one that can be read runs, and a new one of the spoilt owner
    store.schedule(message(C, "c"), "spoilt", "new", at_ms=1)
    store.sweep(LEASE_MS)
    assert all_handed_out(store) == {B, C}
    assert client.zcard(keys.TIMERS) == 0
