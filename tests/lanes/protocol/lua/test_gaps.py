"""append with hold_ms: what comes in another order than its numbers lines up in theirs, as far as there is time."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.commands import NewMessage, only_seen
from chatlanes.lanes.protocol.replies import Appended
from chatlanes.lanes.protocol.store import Store
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
    standing,
    waiting,
)

BLOCK = keys.SEEN_BLOCK
#: So long that no test is slow enough to see a minute of it pass.
HOLD_MS = 10 * MINUTE_MS
#: For how many minutes anything may wait for a gap that has just been missed.
OPEN = 20


def update(number: int, *lanes: str, **more: Any) -> NewMessage:
    message_id = f"1:{number}"
    return NewMessage(message_id, "q", f"body of {message_id}", lanes, once=("1", number), **more)


def append(store: Store, *messages: NewMessage) -> Appended:
    return store.append(messages, hold_ms=HOLD_MS)


def time_is_over(client: Redis, *numbers: int) -> None:
    """For these, of all that are held; nobody has looked yet."""
    client.zadd(keys.HELD, {f"1:{number}": 1 for number in numbers})


def test_the_next_number_is_appended_at_once(client: Redis, store: Store) -> None:
    # Given the number before them is remembered, of an update that was settled long ago
    seed(client, State(seen={"1:0": {9}}))
    # When the next ones come in their order
    appended = append(store, update(10, "a"), update(11, "b"), update(12, "a"))
    # Then nothing is held
    assert appended == Appended(added=3, seen=0, buried=0, pending=3)
    assert read(client) == standing(
        ready("1:10", "a"),
        ready("1:11", "b"),
        waiting("1:12", "a"),
        seen={"1:0": {9, 10, 11, 12}},
        counts={"appended": 3},
        last={"1": 12},
    )


def test_behind_a_gap_it_is_held_and_so_is_all_that_follows(client: Redis, store: Store) -> None:
    seed(client, State(seen={"1:0": {9}}))
    append(store, update(11, "a"))
    appended = append(store, update(12, "b"))
    assert appended.held == 1
    assert 0 < (appended.due_ms or 0) <= HOLD_MS
    assert read(client) == standing(
        held("1:11", "a"),
        held("1:12", "b"),
        seen={"1:0": {9, 11, 12}},
        counts={"appended": 2, "held": 2},
        missing={11: OPEN},
    )


def test_filling_a_gap_releases_its_followers(client: Redis, store: Store) -> None:
    # Given two gaps, at 10 and at 13
    given = [held(f"1:{number}", "a") for number in (11, 12, 14)]
    seed(client, standing(*given, seen={"1:0": {9, 11, 12, 14}}, missing={11: OPEN, 14: OPEN}))
    # When the first is filled
    appended = append(store, update(10, "a"))
    # Then those between the two stand behind it, and what is behind the second is held still
    assert (appended.held, appended.added) == (0, 1)
    assert read(client) == standing(
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
    # Given what is held behind gaps at 10 and 13; 11 was held first, and its time is over
    given = [held(f"1:{number}", "a") for number in (11, 12, 14)]
    seed(client, standing(*given, seen={"1:0": {11, 12, 14}}, missing={11: OPEN, 14: OPEN}))
    time_is_over(client, 11)
    # When anybody looks
    appended = append(store)
    # Then it goes, and the others are held still
    assert 0 < (appended.due_ms or 0) <= HOLD_MS
    assert read(client) == standing(
        held("1:12", "a"),
        held("1:14", "a"),
        ready("1:11", "a"),
        seen={"1:0": {11, 12, 14}},
        missing={11: OPEN, 14: OPEN},
        last={"1": 11},
    )


def test_after_its_deadline_a_message_waits_for_lower_held_ones(client: Redis, store: Store) -> None:
    # Given 14 was held first, and 11 after it
    given = [held(f"1:{number}", "a") for number in (11, 14)]
    seed(client, standing(*given, seen={"1:0": {9, 11, 14}}, missing={11: OPEN, 14: OPEN}))
    time_is_over(client, 14)
    # When anybody looks
    append(store)
    # Then it is held, and nothing looks for it again before the time of the lower one
    assert read(client).held == {"1:11": 10}
    assert read(client).gaps == {"1": ["1:11", "1:14"]}
    # And with that one it goes
    append(store, update(10, "a"))
    assert read(client).lanes == {"a": ["1:10", "1:11", "1:14"]}


def test_a_message_after_its_wait_is_late_and_counted(client: Redis, store: Store) -> None:
    # Given 10 and 11 were given up, and 12 stands
    seed(client, standing(ready("1:12", "a"), seen={"1:0": {9, 12}}, last={"1": 12}))
    # When they come after all, in the wrong order
    append(store, update(11, "a"))
    append(store, update(10, "a"))
    # Then they are in order at least with each other
    assert read(client) == standing(
        ready("1:12", "a"),
        waiting("1:10", "a"),
        waiting("1:11", "a"),
        seen={"1:0": {9, 10, 11, 12}},
        counts={"appended": 2, "held": 1, "late": 2},
        last={"1": 12},
    )


def test_numbers_that_begin_anew_are_not_late(client: Redis, store: Store) -> None:
    # Given a week without any
    seed(client, State(last={"1": 900_000_000}))
    # When Telegram goes on at a random number
    append(store, update(50, "a"), update(51, "a"))
    time_is_over(client, 50, 51)
    append(store)
    # Then they are held, for they might not be the first
    assert read(client) == standing(
        ready("1:50", "a"),
        waiting("1:51", "a"),
        seen={"1:0": {50, 51}},
        counts={"appended": 2, "held": 2},
        missing={50: OPEN},
        last={"1": 51},
    )


def test_a_repeat_of_a_held_message_is_dropped(client: Redis, store: Store) -> None:
    given = standing(held("1:11", "a"), seen={"1:0": {11}})
    seed(client, given)
    assert append(store, update(11, "a")).seen == 1
    assert read(client) == standing(held("1:11", "a"), seen={"1:0": {11}}, counts={"seen": 1})


def test_a_message_without_a_lane_waits_for_nothing_but_counts_as_a_gap(client: Redis, store: Store) -> None:
    # Given a gap at 10
    seed(client, State(seen={"1:0": {9}}))
    # When behind it come one without a lane, a malformed one, one that is not wanted, and an ordinary one
    append(store, update(11), update(12, problem={"type": "E"}), only_seen("1", 13), update(14, "a"))
    # Then only the last is held; 10 may be of its lane
    assert read(client) == standing(
        ready("1:11"),
        buried("1:12", fence=CLOCK),
        held("1:14", "a"),
        seen={"1:0": {9, 11, 12, 13, 14}},
        counts={"appended": 3, "held": 1, "buried": 1},
        missing={11: OPEN},
    )
    # And with the gap filled nothing of it is left
    append(store, update(10, "a"))
    assert read(client) == standing(
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
    assert read(client) == standing(
        ready("1:11", "a"), seen={"1:0": {9, 10, 11, 12}}, counts={"appended": 1}, last={"1": 11}
    )


def test_a_message_without_hold_goes_behind_held_ones(client: Redis, store: Store) -> None:
    # Given a receiver that died with 11 and 13 in hand, and a poller after it
    given = [held("1:11", "a"), held("1:13", "a"), held("1:20", "a")]
    seed(client, standing(*given, seen={"1:0": {11, 13, 20}}, missing={11: OPEN, 13: OPEN, 20: OPEN}))
    # When the poller appends
    appended = store.append([update(10, "a"), update(12, "a"), update(14, "a")])
    # Then each is in its place, and what is behind a gap of the poller's own is held still
    assert appended.added == 3
    assert read(client).lanes == {"a": [f"1:{number}" for number in range(10, 15)]}
    assert read(client).gaps == {"1": ["1:20"]}


def test_the_sweep_releases_abandoned_held_messages(client: Redis, store: Store) -> None:
    # Given every receiver died with two in hand
    seed(client, standing(held("1:11", "a"), held("1:12", "a"), seen={"1:0": {11, 12}}, missing={11: OPEN}))
    store.sweep(LEASE_MS)
    assert read(client).held == {"1:11": 10, "1:12": 10}
    # When their time is over, and a worker sweeps
    time_is_over(client, 11, 12)
    store.sweep(LEASE_MS)
    # Then they are in their lane, and a worker is rung
    assert read(client) == standing(
        ready("1:11", "a"),
        waiting("1:12", "a"),
        seen={"1:0": {11, 12}},
        missing={11: OPEN},
        last={"1": 12},
        swept=0,
    )


def test_scopes_wait_each_for_its_own(client: Redis, store: Store) -> None:
    seed(client, standing(held("1:11", "a"), seen={"1:0": {9, 11}}, missing={11: OPEN}))
    other = NewMessage("2:10", "q", "body of 2:10", ["b"], once=("2", 10))
    assert append(store, other, update(10, "a")).held == 1
    assert read(client).gaps == {"2": ["2:10"]}


@pytest.mark.parametrize("numbers", [[BLOCK - 1, BLOCK], [0, 1], [2**53 - 2, 2**53 - 1]])
def test_numbers_at_the_edges(client: Redis, store: Store, numbers: list[int]) -> None:
    first, second = numbers
    append(store, update(second, "a"))
    append(store, update(first, "a"))
    time_is_over(client, *(number for number in numbers if number))
    append(store)
    assert read(client).lanes == {"a": [f"1:{first}", f"1:{second}"]}


@pytest.mark.parametrize("lost", [keys.HELD, keys.GAP + "1", keys.MISSING + "1"])
def test_held_messages_survive_the_loss_of_a_key(client: Redis, store: Store, lost: str) -> None:
    # Given two that are held
    seed(client, standing(held("1:11", "a"), held("1:12", "a"), seen={"1:0": {11, 12}}, missing={11: OPEN}))
    # When the key is lost that says so, and a repair comes round
    client.delete(lost)
    cursor = "0"
    while True:
        cursor, _ = store.repair(cursor, LEASE_MS)
        if cursor == "0":
            break
    # Then they go in their order, at once or in their time
    time_is_over(client, 11, 12)
    store.sweep(LEASE_MS)
    assert read(client).lanes == {"a": ["1:11", "1:12"]}
    assert read(client).gaps == {}


def test_an_update_that_joins_a_gap_late_has_its_full_time(client: Redis, store: Store) -> None:
    # Given 3 waits for 2, and 4 joins it
    append(store, update(0, "a"), update(1, "a"), update(3, "b"))
    append(store, update(4, "a"))
    # When the time of 3 is over, and then 2 arrives
    time_is_over(client, 3)
    append(store)
    assert read(client).lanes == {"a": ["1:0", "1:1"], "b": ["1:3"]}
    append(store, update(2, "a"))
    # Then 4 is behind it
    assert read(client).lanes == {"a": ["1:0", "1:1", "1:2", "1:4"], "b": ["1:3"]}
    assert read(client).counts["late"] == 1  # behind 3, which is of another lane


def test_a_held_message_waits_for_every_open_gap(client: Redis, store: Store) -> None:
    # Given 14 is held behind gaps at 10 and at 12 and 13
    given = [held("1:11", "a"), held("1:14", "a")]
    seed(client, standing(*given, seen={"1:0": {9, 11, 14}}, missing={11: OPEN, 14: OPEN}))
    # When the upper gap is filled from above, and then the lower one
    append(store, update(13, "a"))
    assert read(client).missing == {"1": {11: OPEN, 13: OPEN}}
    append(store, update(10, "a"))
    # Then 12 alone is still waited for
    assert read(client).lanes == {"a": ["1:10", "1:11"]}
    assert read(client).missing == {"1": {13: OPEN}}
    append(store, update(12, "a"))
    assert read(client).lanes == {"a": [f"1:{number}" for number in range(10, 15)]}
    assert read(client).missing == {}


def test_nothing_waits_for_a_gap_that_was_given_up(client: Redis, store: Store) -> None:
    # Given 3 missed 2 longer ago than anything is held
    given = [waiting("1:3", "b")]
    seed(client, standing(ready("1:1", "b"), *given, seen={"1:0": {1, 3}}, missing={3: 9}, last={"1": 3}))
    # When 4 and then 2 arrive
    append(store, update(4, "a"))
    append(store, update(2, "a"))
    # Then 2 is late
    assert read(client).lanes == {"a": ["1:4", "1:2"], "b": ["1:1", "1:3"]}
    assert read(client).counts["late"] == 1


def test_gaps_that_nothing_waits_for_are_forgotten(client: Redis, store: Store) -> None:
    seed(client, State(seen={"1:0": {1, 3, 6}}, missing={"1": {3: -2, 6: -1, 9: 5}}))
    append(store, update(12, "a"))
    assert read(client).missing == {"1": {9: 5, 12: OPEN}}
