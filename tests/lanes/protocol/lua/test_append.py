"""append: adds a whole batch to the end of its lanes or nothing of it, and each update once."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from celery_lanes.errors import LeaseLost
from celery_lanes.protocol import Appended, Guard, NewMessage, Store, keys
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import CLOCK, State, buried, leased, ready, seed, state_with, waiting

A, B, C, D = "1:10", "1:11", "1:12", "1:13"
BLOCK = keys.SEEN_BLOCK


def new(message_id: str, *lanes: str, queue: str = "q", **more: Any) -> NewMessage:
    return NewMessage(message_id, queue, f"body of {message_id}", lanes, **more)


def update(number: int, *lanes: str, **more: Any) -> NewMessage:
    """A message with a number, by which a duplicate is recognized."""
    return new(f"1:{number}", *lanes, once=("1", number), **more)


def test_the_first_of_each_lane_is_ready_and_the_others_wait(client: Redis, store: Store) -> None:
    # Given an empty database
    # When messages of two lanes are appended in one batch
    appended = store.append([new(A, "a"), new(B, "b"), new(C, "a"), new(D, "a")])
    # Then the oldest of each lane is ready, oldest first, and the bell of their queue is set
    assert appended == Appended(added=4, seen=0, buried=0, pending=4)
    assert read(client) == state_with(
        ready(A, "a"), ready(B, "b"), waiting(C, "a"), waiting(D, "a"), counts={"appended": 4}
    )


def test_a_new_message_joins_behind_existing_ones(client: Redis, store: Store) -> None:
    # Given a running message, a ready one, and a bell that a worker has consumed
    given = [leased(A, "a"), ready(B, "b")]
    seed(client, state_with(*given, bells=[]))
    # When a message is appended to the lane of the running one, and another one to a new lane
    store.append([new(C, "a"), new(D, "d")])
    # Then the first one waits, and the second is ready behind the one that was ready before
    assert read(client) == state_with(*given, waiting(C, "a"), ready(D, "d"), counts={"appended": 2})


def test_a_message_with_several_keys_waits_for_all_lanes(client: Redis, store: Store) -> None:
    # Given a lane with a running message
    seed(client, state_with(leased(A, "a")))
    # When a message of this lane and two others is appended, and one behind it in one of the others
    store.append([new(B, "a", "b", "c"), new(C, "c")])
    # Then both wait, although nothing runs in the other lanes
    assert read(client) == state_with(
        leased(A, "a"), waiting(B, "a", "b", "c"), waiting(C, "c"), counts={"appended": 2}
    )


def test_two_equal_keys_are_one_lane(client: Redis, store: Store) -> None:
    store.append([new(A, "a", "b", "a")])
    assert read(client) == state_with(ready(A, "a", "b"), counts={"appended": 1})


def test_a_message_without_keys_is_ready_at_once(client: Redis, store: Store) -> None:
    store.append([new(A), new(B)])
    assert read(client) == state_with(ready(A), ready(B), counts={"appended": 2})


def test_each_message_is_ready_in_its_own_queue(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a", queue="other"), bells=[]))
    store.append([new(B, "b", queue="q"), new(C, "b", queue="third")])
    # The bells of queues without new ready messages are not set
    assert read(client) == state_with(
        ready(A, "a", queue="other"),
        ready(B, "b"),
        waiting(C, "b", queue="third"),
        bells=["q"],
        counts={"appended": 2},
    )


def test_a_message_with_a_problem_is_buried_at_once(client: Redis, store: Store) -> None:
    # Given an empty database
    # When a malformed message is appended before a valid one of the same lane
    appended = store.append([new(A, "a", problem={"type": "Malformed"}), new(B, "a")])
    # Then it is in the dead letters, and the valid one is ready
    assert appended == Appended(added=2, seen=0, buried=1, pending=1)
    assert read(client) == state_with(
        buried(A, "a", fence=CLOCK, errors=("Malformed",)), ready(B, "a"), counts={"appended": 2, "buried": 1}
    )


def test_duplicates_are_dropped_in_and_across_batches(client: Redis, store: Store) -> None:
    # Given an update that was settled: only its number is left
    seed(client, State(seen={"1:0": {10}}))
    # When it is appended again, together with another one twice
    appended = store.append([update(10, "a"), update(11, "a"), update(11, "a")])
    # Then only the new one is added, once
    assert appended == Appended(added=1, seen=2, buried=0, pending=1)
    assert read(client) == state_with(ready(B, "a"), seen={"1:0": {10, 11}}, counts={"appended": 1, "seen": 2})


def test_duplicates_are_recognized_by_number_not_by_id(client: Redis, store: Store) -> None:
    batch = [new(A, "a", once=("1", 10)), new(B, "a", once=("1", 10))]
    assert store.append(batch) == Appended(added=1, seen=1, buried=0, pending=1)
    assert read(client).lanes == {"a": [A]}


def test_a_buried_message_is_recognized_as_a_duplicate(client: Redis, store: Store) -> None:
    problem = {"type": "Malformed"}
    assert store.append([update(10, problem=problem)]).added == 1
    assert store.append([update(10, problem=problem)]) == Appended(added=0, seen=1, buried=0, pending=0)


def test_a_stored_id_without_a_number_is_a_duplicate(client: Redis, store: Store) -> None:
    given = [leased(A, "a"), buried(B, "a")]
    seed(client, state_with(*given))
    assert store.append([new(A, "a"), new(B, "b"), new(C), new(C)]).seen == 3
    assert read(client) == state_with(*given, ready(C), counts={"appended": 1, "seen": 3})


def test_a_stored_id_is_a_duplicate_after_its_number_expired(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a")))
    store.append([update(10, "a")])
    assert read(client) == state_with(leased(A, "a"), seen={"1:0": {10}}, counts={"seen": 1})


def test_lower_numbers_join_the_end_of_the_lane(client: Redis, store: Store) -> None:
    # Given an update with a high number
    store.append([update(900_000_000, "a")])
    # When the source restarts at a lower number
    store.append([update(7, "a"), update(6, "a")])
    # Then these are new, and in the order of their arrival
    assert read(client).lanes == {"a": ["1:900000000", "1:7", "1:6"]}


def test_numbers_at_the_edges_of_a_block(client: Redis, store: Store) -> None:
    edges = [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK]
    store.append([update(n) for n in edges])
    assert read(client).seen == {"1:0": {0, BLOCK - 1}, "1:1": {0, BLOCK - 1}, "1:2": {0}}
    assert store.append([update(n) for n in edges]).seen == 5
    assert store.append([update(n) for n in (1, BLOCK - 2, BLOCK + 1, 2 * BLOCK - 2, 2 * BLOCK + 1)]).seen == 0


def test_the_largest_number_that_json_can_hold(client: Redis, store: Store) -> None:
    numbers = [2**53 - 2, 2**53 - 1]
    assert store.append([update(n) for n in numbers]).added == 2
    assert store.append([update(n) for n in numbers]).seen == 2


def test_scopes_are_independent(client: Redis, store: Store) -> None:
    store.append([update(10)])
    assert store.append([NewMessage("2:10", "q", "another scope's", (), once=("2", 10))]).added == 1
    assert read(client).seen == {"1:0": {10}, "2:0": {10}}


def test_a_block_expires_after_its_last_new_number(client: Redis, store: Store) -> None:
    seed(client, State(seen={"1:0": {1}, "1:1": {1}}))
    store.append([update(10), update(BLOCK + 1)])
    assert client.ttl(keys.SEEN + "1:0") > keys.SEEN_TTL_S - 3600
    assert client.ttl(keys.SEEN + "1:1") == -1  # it has no new number


def test_a_lost_counter_does_not_change_the_order(client: Redis, store: Store) -> None:
    store.append([new(A, "a"), new(B, "a")])
    client.delete(keys.COUNTS)
    store.append([new(C, "a")])
    assert read(client).lanes == {"a": [A, B, C]}


def test_seq_grows_when_the_clock_goes_back(client: Redis, store: Store) -> None:
    # Given a last seq from a clock that was ahead
    seed(client, state_with(leased(A, "a")))
    client.hset(keys.COUNTS, "seq", 8 * 10**15)
    client.hset(keys.message(A), "seq", 8 * 10**15)
    client.zadd(keys.lane("a"), {A: 8 * 10**15})
    client.zadd(keys.pending("q"), {A: 8 * 10**15})
    # When more messages are appended
    store.append([new(B, "a"), new(C, "a")])
    # Then they are behind it
    assert read(client).lanes == {"a": [A, B, C]}


def test_an_empty_batch_changes_nothing(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a")))
    assert store.append([]) == Appended(added=0, seen=0, buried=0, pending=0)
    assert read(client) == state_with(leased(A, "a"))


@pytest.mark.parametrize("key", ["", "a\nb", "a\x00", "\x7f"])
def test_a_lane_key_with_control_characters_is_refused(client: Redis, store: Store, key: str) -> None:
    with pytest.raises(ValueError, match="not a lane key"):
        store.append([new(A, "a"), new(B, key)])
    assert read(client) == State()


def test_keys_and_bodies_may_be_any_other_text(client: Redis, store: Store) -> None:
    message = NewMessage("ид:%d", "очередь", '{"ключ": "値"}', ["order:-100 %s 値", "a:b"])
    store.append([message])
    [handed_out] = store.turn(["очередь"], holder="me", lease_ms=1000, room=1).leased
    assert (handed_out.id, handed_out.stored.decode()) == (message.id, message.stored)
    assert read(client).lanes == {"order:-100 %s 値": ["ид:%d"], "a:b": ["ид:%d"]}


def test_a_full_server_stores_nothing_of_a_batch(client: Redis, store: Store) -> None:
    # Given a server without free memory
    client.config_set("maxmemory", 1)
    try:
        # When a batch is appended
        with pytest.raises(ResponseError, match="maxmemory"):
            store.append([update(n, f"order:{n}") for n in range(100)])
    finally:
        client.config_set("maxmemory", 0)
    # Then no message of it is stored, and no number counts as seen
    assert read(client) == State()
    assert store.append([update(n, f"order:{n}") for n in range(100)]).added == 100


def test_an_append_with_an_old_fence_changes_nothing(client: Redis, store: Store) -> None:
    # Given a guard that another leader has taken, and one that does not exist
    client.hset("guard", mapping={"fence": "5"})
    # When the previous leader appends a batch late
    for late in (Guard("guard", "4"), Guard("gone", "5")):
        with pytest.raises(LeaseLost):
            store.append([update(10, "a")], late)
    client.delete("guard")
    # Then nothing has changed
    assert read(client) == State()


def test_an_append_with_the_current_fence_is_made(client: Redis, store: Store) -> None:
    client.hset("guard", mapping={"fence": "5"})
    store.append([new(A, "a")], Guard("guard", "5"))
    client.delete("guard")
    assert read(client) == state_with(ready(A, "a"), counts={"appended": 1})


def test_an_append_moves_the_fence_of_its_guard(client: Redis, store: Store) -> None:
    # Given two appenders that have read the same fence
    client.hset("guard", "fence", "5:0")
    guard = Guard("guard", "5:0", {"fence": "6:0", "at": 17})
    # When both append with another fence after it
    store.append([new(A, "a")], guard)
    with pytest.raises(LeaseLost):
        store.append([new(B, "a")], guard)
    # Then one of them has appended
    assert client.hgetall("guard") == {b"fence": b"6:0", b"at": b"17"}
    assert [client.exists(f"lanes:message:{each}") for each in (A, B)] == [1, 0]
