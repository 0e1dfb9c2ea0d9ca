"""pause and resume: paused lanes, queues and groups are not handed out, and delay no others."""

from __future__ import annotations

import pytest
from redis import Redis

from celery_lanes.protocol import NewMessage, Store, keys
from celery_lanes.protocol.admin_verbs import Pausable
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    CLOCK,
    LEASE_MS,
    buried,
    delayed,
    fence,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B, C, D = "1:10", "1:11", "1:12", "1:13"


def turn(store: Store, *queues: str) -> list[str]:
    turned = store.turn(queues or ["q"], holder="me", lease_ms=LEASE_MS, room=9)
    assert not turned.more
    return [message.id for message in turned.leased]


def test_a_paused_lane_is_not_handed_out_until_it_is_resumed(client: Redis, store: Store) -> None:
    # Given two lanes
    seed(client, state_with(ready(A, "a"), waiting(B, "a"), ready(C, "b")))
    # When one is paused, and one more message is appended to it
    assert store.pause("lane", "a")
    store.append([NewMessage(D, "q", f"body of {D}", ["a"])])
    # Then only the other one is handed out
    assert turn(store) == [C]
    assert read(client) == state_with(
        waiting(A, "a"),
        waiting(B, "a"),
        leased(C, "b", fence=CLOCK),
        waiting(D, "a"),
        paused=["lane:a"],
        counts={"appended": 1, "handed_out": 1},
    )
    # And when it is resumed, its first message is ready, and the bell is set
    assert store.resume("lane", "a")
    assert client.llen(keys.bell("q")) == 1
    assert turn(store) == [A]
    assert read(client).paused == set()


@pytest.mark.parametrize("verb", ["release", "retry", "death", "replay", "repair"])
def test_a_message_returned_to_a_paused_lane_waits(client: Redis, store: Store, verb: str) -> None:
    # Given a running, delayed or buried message whose lane is paused
    first = {"replay": buried(A, "a"), "retry": delayed(A, "a", minutes=-1)}.get(verb, leased(A, "a"))
    if verb == "repair":
        first = waiting(A, "a")
    seed(client, state_with(first, bells=[]))
    store.pause("lane", "a")
    # When it returns to its lane
    if verb in ("release", "death"):
        store.release([(A, fence(1))], died=verb == "death")
    store.sweep(LEASE_MS)
    store.replay(A)
    store.repair("0", LEASE_MS)
    # Then it waits until the lane is resumed
    assert turn(store) == []
    assert read(client).messages[A].state == "waiting"
    assert "repaired" not in read(client).counts
    store.resume("lane", "a")
    assert turn(store) == [A]


def test_a_message_of_two_lanes_waits_for_the_paused_one(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a", "b"), waiting(C, "b")))
    store.pause("lane", "b")
    assert store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9, settles=[(A, fence(1))]).leased == []
    store.resume("lane", "b")
    assert turn(store) == [B]


@pytest.mark.parametrize(("what", "name"), [("queue", "shops.one.0"), ("group", "shops.one")])
def test_a_paused_queue_or_group_accepts_appends_and_hands_out_nothing(
    client: Redis, store: Store, what: Pausable, name: str
) -> None:
    # Given queues of two shops, one of which is paused
    seed(client, state_with(ready(A, queue="shops.one.0"), ready(B, queue="shops.two.0")))
    store.pause(what, name)
    store.append([NewMessage(C, "shops.one.0", "body", [])])
    # When a worker of both takes a turn
    assert turn(store, "shops.one.0", "shops.two.0") == [B]
    # Then the paused messages are still ready, and their bell is not set
    state = read(client)
    assert (state.ready, state.bells) == ({"shops.one.0": [A, C]}, set())
    # And when they are resumed, their bell is set, and they are handed out in order
    assert store.resume(what, name, ["shops.one.0", "shops.one.1"])
    assert read(client).bells == {"shops.one.0"}
    assert turn(store, "shops.one.0", "shops.two.0") == [A, C]


def test_a_second_pause_is_reported(client: Redis, store: Store) -> None:
    assert [store.pause("lane", "a"), store.pause("lane", "a"), store.pause("queue", "a")] == [True, False, True]
    assert [store.resume("lane", "a"), store.resume("lane", "a"), store.resume("group", "a")] == [True, False, False]
    assert read(client) == state_with(paused=["queue:a"])


def test_first_queues_alternate_between_groups(client: Redis, store: Store) -> None:
    flood = [ready(f"1:{n}", queue="shops.one.express") for n in range(6)]
    seed(client, state_with(*flood, ready("2:1", queue="shops.two.express"), ready("2:2", queue="shops.two.0")))
    turned = store.turn(
        ["shops.one.express", "shops.two.express", "shops.two.0"], holder="me", lease_ms=LEASE_MS, room=4, first=2
    )
    assert [message.id for message in turned.leased] == ["1:0", "2:1", "1:1", "1:2"]
