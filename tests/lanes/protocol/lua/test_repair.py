"""repair: wherever two keys must agree, either may be lost, and the lanes go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol import store as stores
from chatlanes.lanes.protocol.store import Store
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    CLOCK,
    LEASE_MS,
    State,
    buried,
    delayed,
    fence,
    leased,
    ready,
    seed,
    standing,
    waiting,
)

A, B, C, D, E, F, G = (f"1:{number}" for number in range(10, 17))

#: One message in each state, each with one behind it, and one that waits for two of them.
WHOLE = [
    leased(A, "a", fence=4),
    ready(B, "b", fence=2),
    delayed(C, "c"),
    buried(D, "d"),
    waiting(E, "a", "b"),
    waiting(F, "c"),
    ready(G, queue="other"),
]


def repaired(store: Store) -> int:
    """Rounds of repair until one has nothing to mend; how many were mended."""
    total = 0
    for _ in range(5):
        mended = one_round(store)
        if not mended:
            return total
        total += mended
    raise AssertionError("it mends and mends")


def one_round(store: Store) -> int:
    cursor, total = store.repair("0", LEASE_MS)
    while cursor != "0":
        cursor, mended = store.repair(cursor, LEASE_MS)
        total += mended
    return total


def test_consistent_keys_are_unchanged(client: Redis, store: Store) -> None:
    seed(client, standing(*WHOLE))
    assert one_round(store) == 0
    assert read(client) == standing(*WHOLE)


@pytest.mark.parametrize("look_at", [1, 1000])
@pytest.mark.parametrize(
    "lost", [keys.lane("a"), keys.lane("b"), keys.lane("c"), "q", keys.LEASES, keys.DEAD, keys.pending("q")]
)
def test_a_lost_key_is_put_back(
    client: Redis, store: Store, monkeypatch: pytest.MonkeyPatch, lost: str, look_at: int
) -> None:
    # Given a state in which one key is gone
    monkeypatch.setattr(stores, "REPAIR_LIMIT", look_at)
    seed(client, standing(*WHOLE))
    client.delete(lost)
    # When it is repaired, in steps however small
    mended = repaired(store)
    # Then it is as before
    assert mended >= 1
    assert read(client) == standing(*WHOLE, counts={"repaired": mended})


def test_all_lists_and_lanes_lost_at_once(client: Redis, store: Store) -> None:
    seed(client, standing(*WHOLE))
    client.delete(keys.LEASES, keys.DEAD, "q", "other", keys.pending("q"), *(keys.lane(name) for name in "abc"))
    mended = repaired(store)
    assert read(client) == standing(*WHOLE, counts={"repaired": mended})


def test_a_lost_delay_is_due_at_once(client: Redis, store: Store) -> None:
    seed(client, standing(*WHOLE))
    client.delete(keys.DELAYED)
    assert repaired(store) == 1
    due = [replace(message, minutes=0) if message.state == "delayed" else message for message in WHOLE]
    assert read(client) == standing(*due, counts={"repaired": 1})


@pytest.mark.parametrize("luck", range(8))  # in which order it looks at them is the server's secret
def test_nothing_passes_a_running_message_of_a_lost_lane(
    client: Redis, store: Store, monkeypatch: pytest.MonkeyPatch, luck: int
) -> None:
    # Given a lane of which one message runs and many wait, each with another one behind it
    monkeypatch.setattr(stores, "REPAIR_LIMIT", 1)
    given = [leased(f"{luck}:1", "a")]
    for number in range(10):
        given += [waiting(f"{luck}:1{number}", "a", f"b:{number}"), waiting(f"{luck}:2{number}", f"b:{number}")]
    seed(client, standing(*given))
    client.delete(keys.lane("a"))
    # When it is repaired step by step, and each step is followed by a worker's turn
    cursor, rounds = "0", 0
    while rounds < 3:
        cursor, _ = store.repair(cursor, LEASE_MS)
        rounds += cursor == "0"
        # Then nobody gets the next one
        assert store.turn(["q"], holder="another", lease_ms=LEASE_MS, room=9).leased == []
    assert read(client) == standing(*given, counts={"repaired": 11})


def test_an_unblocked_first_message_is_made_ready(client: Redis, store: Store) -> None:
    seed(client, standing(waiting(A, "a", "b"), waiting(B, "b"), bells=[]))
    assert repaired(store) == 1
    assert read(client) == standing(ready(A, "a", "b"), waiting(B, "b"), counts={"repaired": 1})


def test_a_lost_bell_is_rung_again(client: Redis, store: Store) -> None:
    seed(client, standing(*WHOLE, bells=[]))
    repaired(store)
    assert read(client) == standing(*WHOLE)


def test_a_bell_is_not_rung_for_nothing(client: Redis, store: Store) -> None:
    given = standing(leased(A, "a"), waiting(B, "a"))
    seed(client, given)
    repaired(store)
    assert read(client) == given


@pytest.mark.parametrize("lost", [A, B, C, D])
def test_a_lost_record_stops_no_lane(client: Redis, store: Store, lost: str) -> None:
    # Given a message in each state, of which one lost its record
    seed(client, standing(*WHOLE))
    client.delete(keys.message(lost))
    # When it is repaired, and the others are worked on to their end
    repaired(store)
    handed_out = drain(client, store)
    # Then nothing of it is left, and every other one that is not buried was handed out
    assert {*handed_out, lost} | {D} == {A, B, C, D, E, F, G}
    left = read(client)
    assert (left.lanes, left.ready, left.leases, left.delayed) == ({}, {}, {}, {})
    assert left.messages.keys() == {D} - {lost}
    assert left.bodies.keys() == left.errors.keys() == set(left.dead) == {D} - {lost}
    assert store.pending() == 0


def test_a_lane_passes_lost_records_without_repair(client: Redis, store: Store) -> None:
    seed(client, standing(leased(A, "a", "b"), waiting(B, "a"), waiting(C, "a"), waiting(D, "a"), ready(E)))
    client.delete(keys.message(B), keys.message(C))
    turned = store.turn(["other"], holder="me", lease_ms=LEASE_MS, room=9, settles=[(A, fence(1))])
    assert turned.lost == []
    state = read(client)
    assert (state.lanes, state.ready) == ({"a": [D]}, {"q": [E, D]})


def test_a_lane_of_lost_records_leaves_no_key(client: Redis, store: Store) -> None:
    seed(client, standing(leased(A, "a"), waiting(B, "a")))
    client.delete(keys.message(A), keys.message(B), keys.LEASES)
    repaired(store)
    assert read(client) == State(counts={"repaired": 6})


def test_a_lost_body_is_found_when_its_turn_comes(client: Redis, store: Store) -> None:
    given = [leased(A, "a"), waiting(B, "a"), waiting(C, "a")]
    seed(client, standing(*given))
    client.delete(keys.body(B))
    assert repaired(store) == 0
    turned = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9, settles=[(A, fence(1))])
    assert [message.id for message in turned.leased] == [C]
    expected = standing(
        buried(B, "a", fence=CLOCK, errors=("Buried",)),
        leased(C, "a", fence=CLOCK),
        counts={"settled": 1, "buried": 1, "handed_out": 1},
    )
    del expected.bodies[B]
    assert read(client) == expected


def test_other_keys_of_the_database_are_none_of_its_business(client: Redis, store: Store) -> None:
    client.set("lanes", 1)
    client.set("celery-task-meta-1", 1)
    client.hset("lanes:messages", "state", "waiting")
    assert one_round(store) == 0
    assert len(client.keys()) == 3


def test_a_long_list_is_not_searched(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A)))
    client.delete("q")
    client.lpush("q", *range(1001))
    assert one_round(store) == 0
    client.ltrim("q", 0, 999)
    assert one_round(store) == 1


def drain(client: Redis, store: Store) -> list[str]:
    """Settle all there is, leases that ran out and delays that are due included; ids in the order of their settling."""
    handed_out: list[str] = []
    settles: list[tuple[str, str]] = []
    for _ in range(20):
        for zset in (keys.LEASES, keys.DELAYED):
            for message_id in client.zrange(zset, 0, -1):
                client.zadd(zset, {message_id: 1})
        client.delete(keys.SWEPT)
        turned = store.turn(["q", "other"], holder="me", lease_ms=LEASE_MS, room=9, settles=settles)
        settles = [(message.id, message.fence) for message in turned.leased]
        handed_out += [message.id for message in turned.leased]
        if not settles:
            store.sweep(LEASE_MS)
    return handed_out
