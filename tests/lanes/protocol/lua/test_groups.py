"""Groups of queues, such as one for each shop: a backlog in one group delays no other and is counted separately."""

from __future__ import annotations

from collections import Counter

import pytest
from redis import Redis

from celery_lanes.protocol import Appended, NewMessage, Store, keys
from celery_lanes.transport.fetch import rotated
from tests.lanes.protocol.lua.model.state import LEASE_MS, leased, ready, seed, state_with, waiting

FLOOD = [ready(f"1:{n}", f"a{n}", queue=f"shops.one.{n % 8}") for n in range(80)]
FEW = [ready(f"2:{n}", f"b{n}", queue="shops.two.3") for n in range(10)]
QUEUES = [f"shops.{shop}.{n}" for shop in ("one", "two") for n in range(8)]


def handed_out(store: Store, queues: list[str], room: int) -> list[str]:
    """The groups of the messages that a turn hands out, in order."""
    leased = store.turn(queues, holder="me", lease_ms=LEASE_MS, room=room).leased
    return [keys.group_of(message.queue) for message in leased]


@pytest.mark.parametrize(
    ("queue", "group"),
    [("updates.0", "updates"), ("updates.shop.0", "updates.shop"), ("celery", "celery"), (".x", ".x"), ("a.", "a")],
)
def test_a_group_is_the_name_before_the_last_dot(store: Store, queue: str, group: str) -> None:
    assert keys.group_of(queue) == group
    # And the scripts use the same rule
    store.append([NewMessage("1:1", queue, "body", [])])
    assert store.pending(group) == 1


def test_a_turn_alternates_between_groups(client: Redis, store: Store) -> None:
    # Given a backlog in all queues of one shop, and a few messages in one queue of another shop
    seed(client, state_with(*FLOOD, *FEW))
    # When a turn has room for some of them
    groups = handed_out(store, QUEUES, 12)
    # Then it alternates between the shops
    assert groups == ["shops.one", "shops.two"] * 6
    # And when one shop has no more, the other gets all the room
    assert Counter(handed_out(store, QUEUES, 12)) == {"shops.one": 8, "shops.two": 4}


def test_a_turn_alternates_between_the_queues_of_a_group(client: Redis, store: Store) -> None:
    seed(client, state_with(*FLOOD, *FEW))
    leased = store.turn(QUEUES, holder="me", lease_ms=LEASE_MS, room=16).leased
    assert [message.queue for message in leased if message.id.startswith("1:")] == [f"shops.one.{n}" for n in range(8)]


@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_worker_with_few_slots_serves_all_groups_equally(client: Redis, store: Store, room: int) -> None:
    seed(client, state_with(*FLOOD, *FEW))
    groups = [group for turn in range(12 // room) for group in handed_out(store, rotated(QUEUES, turn), room)]
    assert Counter(groups) == {"shops.one": 6, "shops.two": 6}


def test_queues_rotate_over_groups_and_queues() -> None:
    queues = ["a.0", "a.1", "b.0", "c.0", "c.1", "c.2", "alone"]
    orders = [rotated(queues, turn) for turn in range(24)]
    assert all(sorted(order) == sorted(queues) for order in orders)
    firsts = Counter(order[0] for order in orders)
    assert firsts == {"a.0": 3, "a.1": 3, "b.0": 6, "c.0": 2, "c.1": 2, "c.2": 2, "alone": 6}
    assert rotated([], 5) == []


@pytest.mark.parametrize("room", [1, 2, 4, 8])
def test_a_group_is_served_as_often_as_its_weight(client: Redis, store: Store, room: int) -> None:
    seed(client, state_with(*FLOOD, *FEW))
    weights = {"shops.one.0": 1, "shops.two.3": 3}
    groups = [group for turn in range(8 // room) for group in handed_out(store, rotated(QUEUES, turn, weights), room)]
    assert Counter(groups) == {"shops.one": 2, "shops.two": 6}
    # And a group that has no more leaves its turns to the others
    assert Counter(handed_out(store, rotated(QUEUES, 5, weights), 8)) == {"shops.one": 4, "shops.two": 4}


def test_turns_of_a_weight_are_spread() -> None:
    assert rotated(["a", "b", "c"], 0, {"a": 3, "b": 2}) == ["a", "b", "a", "c", "b", "a"]
    assert {rotated(["a", "b"], turn, {"a": 3})[0] for turn in range(4)} == {"a", "b"}


def test_backlogs_are_counted_by_group(client: Redis, store: Store) -> None:
    # Given a backlog of one group
    seed(
        client,
        state_with(*FLOOD, leased("1:900", "a0", queue="shops.one.0"), waiting("1:901", "a0", queue="shops.one.0")),
    )
    # When messages are appended to another group
    appended = store.append(
        [NewMessage("2:1", "shops.two.0", "body", ["b"]), NewMessage("2:2", "shops.two.1", "body", [])]
    )
    # Then the reply contains the backlog of that group
    assert appended == Appended(added=2, seen=0, buried=0, pending=2)
    assert (store.pending("shops.one"), store.pending("shops.two"), store.pending("none")) == (82, 2, 0)
    assert store.pending("shops.one", "shops.two") == store.pending() == 84
