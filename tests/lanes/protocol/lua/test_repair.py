"""repair: restores a lost key from the others, so that the lanes continue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from celery_lanes.protocol import Store, keys, verbs
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
    state_with,
    waiting,
)

A, B, C, D, E, F, G = (f"1:{number}" for number in range(10, 17))

#: Messages in every state, and messages that wait behind them.
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
    """Repair in rounds until a round finds nothing; returns the number of repairs."""
    total = 0
    for _ in range(5):
        repairs = one_round(store)
        if not repairs:
            return total
        total += repairs
    raise AssertionError("the repair does not end")


def one_round(store: Store) -> int:
    cursor, total = store.repair("0", LEASE_MS)
    while cursor != "0":
        cursor, repairs = store.repair(cursor, LEASE_MS)
        total += repairs
    return total


def test_consistent_keys_are_unchanged(client: Redis, store: Store) -> None:
    seed(client, state_with(*WHOLE))
    assert one_round(store) == 0
    assert read(client) == state_with(*WHOLE)


@pytest.mark.parametrize("limit", [1, 1000])
@pytest.mark.parametrize(
    "lost", [keys.lane("a"), keys.lane("b"), keys.lane("c"), "q", keys.LEASES, keys.DEAD, keys.pending("q")]
)
def test_a_lost_key_is_restored(
    client: Redis, store: Store, monkeypatch: pytest.MonkeyPatch, lost: str, limit: int
) -> None:
    # Given a state in which one key is lost
    monkeypatch.setattr(verbs, "REPAIR_LIMIT", limit)
    seed(client, state_with(*WHOLE))
    client.delete(lost)
    # When it is repaired, in steps of any size
    repairs = repaired(store)
    # Then the state is as before
    assert repairs >= 1
    assert read(client) == state_with(*WHOLE, counts={"repaired": repairs})


def test_all_lists_and_lanes_lost_at_once(client: Redis, store: Store) -> None:
    seed(client, state_with(*WHOLE))
    client.delete(keys.LEASES, keys.DEAD, "q", "other", keys.pending("q"), *(keys.lane(name) for name in "abc"))
    repairs = repaired(store)
    assert read(client) == state_with(*WHOLE, counts={"repaired": repairs})


def test_a_lost_delay_is_due_at_once(client: Redis, store: Store) -> None:
    seed(client, state_with(*WHOLE))
    client.delete(keys.DELAYED)
    assert repaired(store) == 1
    due = [replace(message, minutes=0) if message.state == "delayed" else message for message in WHOLE]
    assert read(client) == state_with(*due, counts={"repaired": 1})


@pytest.mark.parametrize("prefix", range(8))  # different ids, because the server scans them in an arbitrary order
def test_nothing_overtakes_a_running_message_of_a_lost_lane(
    client: Redis, store: Store, monkeypatch: pytest.MonkeyPatch, prefix: int
) -> None:
    # Given a lane with one running and many waiting messages, each of which blocks another one
    monkeypatch.setattr(verbs, "REPAIR_LIMIT", 1)
    given = [leased(f"{prefix}:1", "a")]
    for number in range(10):
        given += [waiting(f"{prefix}:1{number}", "a", f"b:{number}"), waiting(f"{prefix}:2{number}", f"b:{number}")]
    seed(client, state_with(*given))
    client.delete(keys.lane("a"))
    # When it is repaired step by step, with a worker's turn after each step
    cursor, rounds = "0", 0
    while rounds < 3:
        cursor, _ = store.repair(cursor, LEASE_MS)
        rounds += cursor == "0"
        # Then no message is handed out
        assert store.turn(["q"], holder="another", lease_ms=LEASE_MS, room=9).leased == []
    assert read(client) == state_with(*given, counts={"repaired": 11})


def test_an_unblocked_first_message_is_made_ready(client: Redis, store: Store) -> None:
    seed(client, state_with(waiting(A, "a", "b"), waiting(B, "b"), bells=[]))
    assert repaired(store) == 1
    assert read(client) == state_with(ready(A, "a", "b"), waiting(B, "b"), counts={"repaired": 1})


def test_a_lost_bell_is_set_again(client: Redis, store: Store) -> None:
    seed(client, state_with(*WHOLE, bells=[]))
    repaired(store)
    assert read(client) == state_with(*WHOLE)


def test_a_bell_is_not_set_without_ready_messages(client: Redis, store: Store) -> None:
    given = state_with(leased(A, "a"), waiting(B, "a"))
    seed(client, given)
    repaired(store)
    assert read(client) == given


@pytest.mark.parametrize("lost", [A, B, C, D])
def test_a_lost_record_blocks_no_lane(client: Redis, store: Store, lost: str) -> None:
    # Given a message in each state, one of which has lost its record
    seed(client, state_with(*WHOLE))
    client.delete(keys.message(lost))
    # When the state is repaired, and all other messages are run
    repaired(store)
    handed_out = drain(client, store)
    # Then no key of it is left, and every other message that is not buried was handed out
    assert {*handed_out, lost} | {D} == {A, B, C, D, E, F, G}
    left = read(client)
    assert (left.lanes, left.ready, left.leases, left.delayed) == ({}, {}, {}, {})
    assert left.messages.keys() == {D} - {lost}
    assert left.bodies.keys() == left.errors.keys() == set(left.dead) == {D} - {lost}
    assert store.pending() == 0


def test_a_lane_skips_lost_records_without_a_repair(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", "b"), waiting(B, "a"), waiting(C, "a"), waiting(D, "a"), ready(E)))
    client.delete(keys.message(B), keys.message(C))
    turned = store.turn(["other"], holder="me", lease_ms=LEASE_MS, room=9, settles=[(A, fence(1))])
    assert turned.lost == []
    state = read(client)
    assert (state.lanes, state.ready) == ({"a": [D]}, {"q": [E, D]})


def test_a_lane_of_lost_records_leaves_no_key(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a")))
    client.delete(keys.message(A), keys.message(B), keys.LEASES)
    repaired(store)
    assert read(client) == State(counts={"repaired": 6})


def test_a_lost_body_is_noticed_at_the_hand_out(client: Redis, store: Store) -> None:
    given = [leased(A, "a"), waiting(B, "a"), waiting(C, "a")]
    seed(client, state_with(*given))
    client.delete(keys.body(B))
    assert repaired(store) == 0
    turned = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9, settles=[(A, fence(1))])
    assert [message.id for message in turned.leased] == [C]
    expected = state_with(
        buried(B, "a", fence=CLOCK, errors=("Buried",)),
        leased(C, "a", fence=CLOCK),
        counts={"settled": 1, "buried": 1, "handed_out": 1},
    )
    del expected.bodies[B]
    assert read(client) == expected


def test_foreign_keys_are_ignored(client: Redis, store: Store) -> None:
    client.set("lanes", 1)
    client.set("celery-task-meta-1", 1)
    client.hset("lanes:messages", "state", "waiting")
    assert one_round(store) == 0
    assert len(client.keys()) == 3


def test_a_long_list_is_not_searched(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A)))
    client.delete("q")
    client.lpush("q", *range(1001))
    assert one_round(store) == 0
    client.ltrim("q", 0, 999)
    assert one_round(store) == 1


def drain(client: Redis, store: Store) -> list[str]:
    """Hand out and settle all messages, with all leases expired and all delays due; returns their ids in order."""
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
