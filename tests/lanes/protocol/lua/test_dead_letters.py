"""bury, replay, drop, purge: the verbs of the dead letters."""

from __future__ import annotations

import json

import pytest
from redis import Redis

from celery_lanes.protocol import Outcome, Store, admin_verbs, keys, verbs
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import buried, delayed, fence, leased, ready, seed, state_with, waiting

A, B, C, D = "1:10", "1:11", "1:12", "1:13"


def test_a_buried_message_keeps_its_errors_and_its_lanes_continue(client: Redis, store: Store) -> None:
    # Given a message that two others wait for, one of which waits also for another message
    others = [leased(D, "d")]
    given = [leased(A, "a", "b", fence=4, failed=1, errors=("E",)), waiting(B, "b"), waiting(C, "a", "d")]
    seed(client, state_with(*others, *given))
    # When it is buried
    assert store.bury(A, fence(4), {"type": "ValueError", "message": "no"}) is Outcome.DONE
    # Then it has left its lanes and has all its errors, and the message that waited only for it is ready
    assert read(client) == state_with(
        *others,
        buried(A, "a", "b", fence=5, failed=1, errors=("E", "ValueError")),
        ready(B, "b"),
        waiting(C, "a", "d"),
        counts={"buried": 1},
    )
    problem = json.loads(client.lrange(keys.errors(A), -1, -1)[0])
    assert problem == {"type": "ValueError", "message": "no", "at_ms": problem["at_ms"]}


def test_a_replayed_message_joins_the_end_with_zero_counts(client: Redis, store: Store) -> None:
    # Given a buried message, and newer messages in both of its lanes
    buried_before = buried(A, "a", "b", fence=4, died=5, failed=3, errors=("E", "E"))
    seed(client, state_with(buried_before, leased(B, "a"), ready(C, "b")))
    # When it is replayed
    assert store.replay(A) is True
    # Then it waits behind the newer ones, and its failures, deaths and errors are cleared
    assert read(client) == state_with(
        leased(B, "a"), ready(C, "b"), waiting(A, "a", "b", fence=4, replayed=0), counts={"replayed": 1}
    )


def test_a_replayed_message_in_free_lanes_is_ready(client: Redis, store: Store) -> None:
    seed(client, state_with(buried(A, "a", "b", fence=4), buried(B), ready(C), bells=[]))
    assert store.replay(A)
    assert store.replay(B)
    assert read(client) == state_with(
        ready(C), ready(A, "a", "b", fence=4, replayed=0), ready(B, fence=1, replayed=0), counts={"replayed": 2}
    )


@pytest.mark.parametrize(
    "given", [waiting(A, "a"), ready(A, "a"), leased(A, "a"), delayed(A, "a")], ids=lambda message: message.state
)
def test_only_buried_messages_are_replayed(client: Redis, store: Store, given: verbs.NewMessage) -> None:
    state = state_with(given)  # type: ignore[arg-type]
    seed(client, state)
    assert store.replay(A) is False
    assert store.replay("gone") is False
    assert read(client) == state


def test_drop_leaves_only_the_seen_number(client: Redis, store: Store) -> None:
    others = [buried(B, "a"), leased(C, "a")]
    seed(client, state_with(buried(A, "a", died=2), *others, seen={"1:0": [10]}))
    assert [store.drop(A), store.drop(A), store.drop("gone")] == [True, False, False]
    assert read(client) == state_with(*others, seen={"1:0": [10]}, counts={"dropped": 1})


@pytest.mark.parametrize(
    "given", [waiting(A, "a"), ready(A, "a"), leased(A, "a"), delayed(A, "a")], ids=lambda message: message.state
)
def test_only_buried_messages_are_dropped(client: Redis, store: Store, given: verbs.NewMessage) -> None:
    state = state_with(given)  # type: ignore[arg-type]
    seed(client, state)
    assert store.drop(A) is False
    assert read(client) == state


def test_a_second_replay_does_nothing(client: Redis, store: Store) -> None:
    seed(client, state_with(buried(A, "a")))
    assert [store.replay(A), store.replay(A)] == [True, False]
    assert read(client) == state_with(ready(A, "a", fence=1, replayed=0), counts={"replayed": 1})


def test_a_replayed_message_is_behind_earlier_appends(client: Redis, store: Store) -> None:
    seed(client, state_with(buried(A, "a")))
    store.append([verbs.NewMessage(B, "q", "b", ["a"])])
    store.replay(A)
    store.append([verbs.NewMessage(C, "q", "c", ["a"])])
    assert read(client).lanes == {"a": [B, A, C]}


def test_a_replayed_message_joins_the_end_when_the_clock_goes_back(client: Redis, store: Store) -> None:
    # Given a last seq from a clock that was ahead
    seed(client, state_with(leased(B, "a"), buried(A, "a")))
    for key in (keys.COUNTS, keys.message(B)):
        client.hset(key, "seq", 8 * 10**15)
    for zset in (keys.lane("a"), keys.pending("q")):
        client.zadd(zset, {B: 8 * 10**15})
    # When one message is replayed and another appended, both with ids that sort before
    store.replay(A)
    store.append([verbs.NewMessage("1:09", "q", "body", ["a"])])
    # Then both are at the end, in this order
    assert read(client).lanes == {"a": [B, A, "1:09"]}


def test_purge_buries_messages_that_become_ready_meanwhile(client: Redis, store: Store) -> None:
    # Given a queue with a ready message and messages behind it, one of which belongs to another queue
    others = [leased(D, "d"), waiting("1:14", "d")]
    given = [ready(A, "a", fence=1), waiting(B, "a", fence=1), waiting(C, "a", queue="other"), waiting("1:15", "a")]
    seed(client, state_with(*others, *given))
    # When it is purged
    assert store.purge("q") == 2
    # Then its messages are buried, running ones are not affected, and the other queue continues with its bell set
    dead = [buried(A, "a", fence=2, errors=("Purged",)), buried(B, "a", fence=2, errors=("Purged",))]
    left = [ready(C, "a", queue="other"), waiting("1:15", "a")]
    assert read(client) == state_with(*others, *dead, *left, bells=["q", "other"], counts={"buried": 2})


def test_purge_in_bounded_steps(client: Redis, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given more entries than a step handles, some of them without a message
    monkeypatch.setattr(admin_verbs, "PURGE_LIMIT", 2)
    state = state_with(ready(A), ready(B), ready(C), waiting(D, fence=1))
    state.ready = {"q": ["gone:1", "gone:2", "gone:3", A, D, B, C]}
    seed(client, state)
    assert store.purge("q") == 3
    assert read(client).ready == {}


def test_purge_buries_a_foreign_entry(client: Redis, store: Store) -> None:
    entry = json.dumps({"body": "W10=", "headers": {"id": "abc"}, "properties": {}})
    client.lpush("q", entry)
    assert store.purge("q") == 1
    state = read(client)
    assert (state.dead, state.bodies["abc"], store.pending()) == (["abc"], entry, 0)


def test_purge_of_an_empty_queue(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A)))
    assert store.purge("q") == 0
    assert read(client) == state_with(leased(A))
