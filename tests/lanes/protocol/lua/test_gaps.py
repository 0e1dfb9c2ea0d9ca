"""append with hold_ms: messages join their lanes in the order of their numbers; waits for missing ones are limited."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from celery_lanes.protocol import Appended, NewMessage, Store, keys, only_seen
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    CLOCK,
    LEASE_MS,
    MINUTE_MS,
    State,
    buried,
    held,
    ready,
    seed,
    state_with,
    waiting,
)

BLOCK = keys.SEEN_BLOCK
#: Times are compared in minutes, and no test takes a minute.
HOLD_MS = 10 * MINUTE_MS
#: The minutes for which messages may wait for a new gap.
OPEN = 20


def update(number: int, *lanes: str, **more: Any) -> NewMessage:
    message_id = f"1:{number}"
    return NewMessage(message_id, "q", f"body of {message_id}", lanes, once=("1", number), **more)


def append(store: Store, *messages: NewMessage) -> Appended:
    return store.append(messages, hold_ms=HOLD_MS)


def expire_hold(client: Redis, *numbers: int) -> None:
    """Let the hold of these messages expire; no append or sweep has noticed it yet."""
    client.zadd(keys.HELD, {f"1:{number}": 1 for number in numbers})


def test_the_next_number_is_appended_at_once(client: Redis, store: Store) -> None:
    # Given that the number before them was seen
    seed(client, State(seen={"1:0": {9}}))
    # When the next updates are appended in order
    appended = append(store, update(10, "a"), update(11, "b"), update(12, "a"))
    # Then nothing is held
    assert appended == Appended(added=3, seen=0, buried=0, pending=3)
    assert read(client) == state_with(
        ready("1:10", "a"),
        ready("1:11", "b"),
        waiting("1:12", "a"),
        seen={"1:0": {9, 10, 11, 12}},
        counts={"appended": 3},
        last={"1": 12},
    )


def test_messages_behind_a_gap_are_held(client: Redis, store: Store) -> None:
    seed(client, State(seen={"1:0": {9}}))
    append(store, update(11, "a"))
    appended = append(store, update(12, "b"))
    assert appended.held == 1
    assert 0 < (appended.due_ms or 0) <= HOLD_MS
    assert read(client) == state_with(
        held("1:11", "a"),
        held("1:12", "b"),
        seen={"1:0": {9, 11, 12}},
        counts={"appended": 2, "held": 2},
        missing={11: OPEN},
    )


def test_filling_a_gap_releases_its_followers(client: Redis, store: Store) -> None:
    # Given two gaps, at 10 and at 13
    given = [held(f"1:{number}", "a") for number in (11, 12, 14)]
    seed(client, state_with(*given, seen={"1:0": {9, 11, 12, 14}}, missing={11: OPEN, 14: OPEN}))
    # When the first is filled
    appended = append(store, update(10, "a"))
    # Then the messages between the gaps join behind it, and the one behind the second gap is still held
    assert (appended.held, appended.added) == (0, 1)
    assert read(client) == state_with(
        held("1:14", "a"),
        ready("1:10", "a"),
        waiting("1:11", "a"),
        waiting("1:12", "a"),
        seen={"1:0": {9, 10, 11, 12, 14}},
        counts={"appended": 1},
        missing={14: OPEN},
        last={"1": 12},
    )


def test_each_held_message_has_its_own_deadline(client: Redis, store: Store) -> None:
    # Given messages that are held behind gaps at 10 and 13; 11 was held first, and its hold has expired
    given = [held(f"1:{number}", "a") for number in (11, 12, 14)]
    seed(client, state_with(*given, seen={"1:0": {11, 12, 14}}, missing={11: OPEN, 14: OPEN}))
    expire_hold(client, 11)
    # When an append checks the held messages
    appended = append(store)
    # Then 11 is released, and the others are still held
    assert 0 < (appended.due_ms or 0) <= HOLD_MS
    assert read(client) == state_with(
        held("1:12", "a"),
        held("1:14", "a"),
        ready("1:11", "a"),
        seen={"1:0": {11, 12, 14}},
        missing={11: OPEN, 14: OPEN},
        last={"1": 11},
    )


def test_after_its_deadline_a_message_waits_for_lower_held_ones(client: Redis, store: Store) -> None:
    # Given that 14 was held first, and 11 after it
    given = [held(f"1:{number}", "a") for number in (11, 14)]
    seed(client, state_with(*given, seen={"1:0": {9, 11, 14}}, missing={11: OPEN, 14: OPEN}))
    expire_hold(client, 14)
    # When the hold of 14 expires
    append(store)
    # Then it is still held, and is not checked again before the deadline of the lower one
    assert read(client).held == {"1:11": 10}
    assert read(client).gaps == {"1": ["1:11", "1:14"]}
    # And it is released together with that one
    append(store, update(10, "a"))
    assert read(client).lanes == {"a": ["1:10", "1:11", "1:14"]}


def test_a_message_after_its_wait_is_late_and_counted(client: Redis, store: Store) -> None:
    # Given that 12 no longer waits for 10 and 11
    seed(client, state_with(ready("1:12", "a"), seen={"1:0": {9, 12}}, last={"1": 12}))
    # When these arrive in the wrong order
    append(store, update(11, "a"))
    append(store, update(10, "a"))
    # Then they are behind 12, and in order with each other
    assert read(client) == state_with(
        ready("1:12", "a"),
        waiting("1:10", "a"),
        waiting("1:11", "a"),
        seen={"1:0": {9, 10, 11, 12}},
        counts={"appended": 2, "held": 1, "late": 2},
        last={"1": 12},
    )


def test_numbers_that_restart_are_not_late(client: Redis, store: Store) -> None:
    # Given a week without updates
    seed(client, State(last={"1": 900_000_000}))
    # When the source continues with a random number
    append(store, update(50, "a"), update(51, "a"))
    expire_hold(client, 50, 51)
    append(store)
    # Then they are held, because lower numbers may be missing
    assert read(client) == state_with(
        ready("1:50", "a"),
        waiting("1:51", "a"),
        seen={"1:0": {50, 51}},
        counts={"appended": 2, "held": 2},
        missing={50: OPEN},
        last={"1": 51},
    )


def test_a_repeat_of_a_held_message_is_dropped(client: Redis, store: Store) -> None:
    given = state_with(held("1:11", "a"), seen={"1:0": {11}})
    seed(client, given)
    assert append(store, update(11, "a")).seen == 1
    assert read(client) == state_with(held("1:11", "a"), seen={"1:0": {11}}, counts={"seen": 1})


def test_only_messages_with_lanes_are_held(client: Redis, store: Store) -> None:
    # Given a gap at 10
    seed(client, State(seen={"1:0": {9}}))
    # When a message without lanes, a malformed one, an unwanted one and an ordinary one are appended behind it
    append(store, update(11), update(12, problem={"type": "E"}), only_seen("1", 13), update(14, "a"))
    # Then only the last one is held, because 10 may be of its lane
    assert read(client) == state_with(
        ready("1:11"),
        buried("1:12", fence=CLOCK),
        held("1:14", "a"),
        seen={"1:0": {9, 11, 12, 13, 14}},
        counts={"appended": 3, "held": 1, "buried": 1},
        missing={11: OPEN},
    )
    # And when the gap is filled, the last one is released
    append(store, update(10, "a"))
    assert read(client) == state_with(
        ready("1:11"),
        buried("1:12", fence=CLOCK),
        ready("1:10", "a"),
        waiting("1:14", "a"),
        seen={"1:0": {9, 10, 11, 12, 13, 14}},
        counts={"appended": 4, "held": 1, "buried": 1},
        last={"1": 14},
    )


def test_an_unwanted_number_leaves_no_gap(client: Redis, store: Store) -> None:
    seed(client, State(seen={"1:0": {9}}))
    appended = append(store, only_seen("1", 10), update(11, "a"), only_seen("1", 12))
    assert appended == Appended(added=1, seen=0, buried=0, pending=1)
    assert read(client) == state_with(
        ready("1:11", "a"), seen={"1:0": {9, 10, 11, 12}}, counts={"appended": 1}, last={"1": 11}
    )


def test_a_message_without_hold_goes_behind_held_ones(client: Redis, store: Store) -> None:
    # Given messages that a dead receiver left held
    given = [held("1:11", "a"), held("1:13", "a"), held("1:20", "a")]
    seed(client, state_with(*given, seen={"1:0": {11, 13, 20}}, missing={11: OPEN, 13: OPEN, 20: OPEN}))
    # When a poller appends without hold
    appended = store.append([update(10, "a"), update(12, "a"), update(14, "a")])
    # Then all are in order, and only 20 is still held, because it has another gap before it
    assert appended.added == 3
    assert read(client).lanes == {"a": [f"1:{number}" for number in range(10, 15)]}
    assert read(client).gaps == {"1": ["1:20"]}


def test_the_sweep_releases_abandoned_held_messages(client: Redis, store: Store) -> None:
    # Given two messages that dead receivers left held
    seed(client, state_with(held("1:11", "a"), held("1:12", "a"), seen={"1:0": {11, 12}}, missing={11: OPEN}))
    store.sweep(LEASE_MS)
    assert read(client).held == {"1:11": 10, "1:12": 10}
    # When their hold expires, and a worker sweeps
    expire_hold(client, 11, 12)
    store.sweep(LEASE_MS)
    # Then they join their lane, and the bell is set
    assert read(client) == state_with(
        ready("1:11", "a"),
        waiting("1:12", "a"),
        seen={"1:0": {11, 12}},
        missing={11: OPEN},
        last={"1": 12},
        swept=0,
    )


def test_gaps_of_scopes_are_independent(client: Redis, store: Store) -> None:
    seed(client, state_with(held("1:11", "a"), seen={"1:0": {9, 11}}, missing={11: OPEN}))
    other = NewMessage("2:10", "q", "body of 2:10", ["b"], once=("2", 10))
    assert append(store, other, update(10, "a")).held == 1
    assert read(client).gaps == {"2": ["2:10"]}


@pytest.mark.parametrize("numbers", [[BLOCK - 1, BLOCK], [0, 1], [2**53 - 2, 2**53 - 1]])
def test_numbers_at_the_edges(client: Redis, store: Store, numbers: list[int]) -> None:
    first, second = numbers
    append(store, update(second, "a"))
    append(store, update(first, "a"))
    expire_hold(client, *(number for number in numbers if number))
    append(store)
    assert read(client).lanes == {"a": [f"1:{first}", f"1:{second}"]}


@pytest.mark.parametrize("lost", [keys.HELD, keys.GAP + "1", keys.MISSING + "1"])
def test_held_messages_survive_the_loss_of_a_key(client: Redis, store: Store, lost: str) -> None:
    # Given two held messages
    seed(client, state_with(held("1:11", "a"), held("1:12", "a"), seen={"1:0": {11, 12}}, missing={11: OPEN}))
    # When one of the keys that hold them is lost, and a repair runs
    client.delete(lost)
    cursor = "0"
    while True:
        cursor, _ = store.repair(cursor, LEASE_MS)
        if cursor == "0":
            break
    # Then they are released in order, at once or at their deadline
    expire_hold(client, 11, 12)
    store.sweep(LEASE_MS)
    assert read(client).lanes == {"a": ["1:11", "1:12"]}
    assert read(client).gaps == {}


def test_each_update_waits_its_full_time_for_a_gap(client: Redis, store: Store) -> None:
    # Given that 3 waits for 2, and then also 4
    append(store, update(0, "a"), update(1, "a"), update(3, "b"))
    append(store, update(4, "a"))
    # When the hold of 3 expires, and then 2 arrives
    expire_hold(client, 3)
    append(store)
    assert read(client).lanes == {"a": ["1:0", "1:1"], "b": ["1:3"]}
    append(store, update(2, "a"))
    # Then 4 is behind 2
    assert read(client).lanes == {"a": ["1:0", "1:1", "1:2", "1:4"], "b": ["1:3"]}
    assert read(client).counts["late"] == 1  # 2 joins after 3, which is of another lane


def test_a_held_message_waits_for_every_open_gap(client: Redis, store: Store) -> None:
    # Given that 14 is held behind gaps at 10 and at 12 to 13
    given = [held("1:11", "a"), held("1:14", "a")]
    seed(client, state_with(*given, seen={"1:0": {9, 11, 14}}, missing={11: OPEN, 14: OPEN}))
    # When 13 arrives, and then 10
    append(store, update(13, "a"))
    assert read(client).missing == {"1": {11: OPEN, 13: OPEN}}
    append(store, update(10, "a"))
    # Then only 12 is still missing
    assert read(client).lanes == {"a": ["1:10", "1:11"]}
    assert read(client).missing == {"1": {13: OPEN}}
    append(store, update(12, "a"))
    assert read(client).lanes == {"a": [f"1:{number}" for number in range(10, 15)]}
    assert read(client).missing == {}


def test_no_message_waits_for_an_old_gap(client: Redis, store: Store) -> None:
    # Given that 2 has been missing for longer than any hold
    given = [waiting("1:3", "b")]
    seed(client, state_with(ready("1:1", "b"), *given, seen={"1:0": {1, 3}}, missing={3: 9}, last={"1": 3}))
    # When 4 and then 2 arrive
    append(store, update(4, "a"))
    append(store, update(2, "a"))
    # Then 2 is late
    assert read(client).lanes == {"a": ["1:4", "1:2"], "b": ["1:1", "1:3"]}
    assert read(client).counts["late"] == 1


def test_expired_gaps_are_deleted(client: Redis, store: Store) -> None:
    seed(client, State(seen={"1:0": {1, 3, 6}}, missing={"1": {3: -2, 6: -1, 9: 5}}))
    append(store, update(12, "a"))
    assert read(client).missing == {"1": {9: 5, 12: OPEN}}
