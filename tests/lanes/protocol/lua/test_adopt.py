"""adopt: elements of an ordinary list move into lanes, in one step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from celery_lanes.protocol import Adopted, Element, NewMessage, Store, keys
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import State, fence, leased, ready, seed, state_with, waiting

A, B, C = "1:10", "1:11", "1:12"
#: Longer than the list.
ALL = {"first": -100, "last": -1}
LATER_MS = 9_000_000_000_000


def element(message_id: str, *lanes: str, at_ms: int | None = None) -> Element:
    new = NewMessage(message_id, "q", f"body of {message_id}", lanes)
    timer = None if at_ms is None else (f"task {message_id}", "eta")
    return Element(f"{{{message_id}}}".encode(), new, timer, at_ms or 0)


def fill(client: Redis, *elements: Element | str) -> None:
    """The first one is the next one that a worker of kombu would take."""
    for each in elements:
        client.lpush("old", each.stored if isinstance(each, Element) else each)


def with_list(state: State, *elements: Element | str) -> State:
    left = [each.stored.decode() if isinstance(each, Element) else each for each in elements]
    return replace(state, ready={**state.ready, "old": left} if left else state.ready)


def test_elements_join_their_lanes_in_the_order_of_the_list(client: Redis, store: Store) -> None:
    # Given a lane whose first message runs, and a list with one that is nobody's among others
    seed(client, state_with(leased(C, "a")))
    first, second, third = element(A, "a"), element(B, "a", "b"), element("1:13", "b")
    fill(client, first, "theirs", second, third)
    # When those of the lanes are moved
    assert store.adopt("old", [first, second, third], **ALL) == [Adopted.MOVED] * 3
    # Then they stand behind it in their order, and the other one stays
    assert read(client) == with_list(
        state_with(
            leased(C, "a"),
            waiting(A, "a"),
            waiting(B, "a", "b"),
            waiting("1:13", "b"),
            counts={"appended": 3},
        ),
        "theirs",
    )


def test_an_element_that_a_worker_has_taken_is_not_moved(client: Redis, store: Store) -> None:
    first, second = element(A, "a"), element(B, "a")
    fill(client, second)
    assert store.adopt("old", [first, second], **ALL) == [Adopted.NOT_THERE, Adopted.MOVED]
    assert read(client) == state_with(ready(B, "a"), counts={"appended": 1})
    assert store.adopt("old", [first, second], **ALL) == [Adopted.NOT_THERE] * 2
    assert read(client) == state_with(ready(B, "a"), counts={"appended": 1})


def test_an_id_that_waits_is_removed_and_not_appended(client: Redis, store: Store) -> None:
    # Given a message that waits, a timer that is set, and copies of both
    waits, is_set = element(A, "a"), element(B, "a", at_ms=LATER_MS)
    seed(client, state_with(ready(A, "a")))
    fill(client, is_set)
    assert store.adopt("old", [is_set], **ALL) == [Adopted.SCHEDULED]
    before = read(client)
    copies = [waits, is_set, element(A, "a", at_ms=LATER_MS)]
    fill(client, *copies[:2])
    # Then they are removed, and nothing else changes
    assert store.adopt("old", copies[:2], **ALL) == [Adopted.KNOWN] * 2
    fill(client, copies[2])
    assert store.adopt("old", copies[2:], **ALL) == [Adopted.KNOWN]
    assert read(client) == before


def test_a_message_with_the_id_that_runs_is_its_successor(client: Redis, store: Store) -> None:
    """As of `self.replace()` by a task that still publishes to the old queue."""
    seed(client, state_with(leased(A, "a"), waiting(B, "a")))
    replacement = element(A, "a")
    fill(client, replacement)
    assert store.adopt("old", [replacement], **ALL) == [Adopted.MOVED]
    store.turn(["q"], holder="w", lease_ms=60_000, room=0, settles=[(A, fence(1))])
    assert [each.decode() for each in client.zrange(keys.lane("a"), 0, -1)] == [B, A]


def test_equal_elements_are_moved_one_by_one(client: Redis, store: Store) -> None:
    same = element(A, "a")
    fill(client, same, same)
    assert store.adopt("old", [same, same], **ALL) == [Adopted.MOVED, Adopted.NOT_THERE]
    assert read(client) == with_list(state_with(ready(A, "a"), counts={"appended": 1}), same)
    assert store.adopt("old", [same], **ALL) == [Adopted.KNOWN]
    assert read(client) == state_with(ready(A, "a"), counts={"appended": 1})


def test_an_eta_becomes_a_timer_unless_it_is_over(client: Redis, store: Store) -> None:
    later, over = element(A, "a", at_ms=LATER_MS), element(B, "a", at_ms=1)
    fill(client, later, over)
    assert store.adopt("old", [later, over], **ALL) == [Adopted.SCHEDULED, Adopted.MOVED]
    [timer] = store.timers(f"task {A}")
    assert (timer.name, timer.at_ms, timer.id, timer.lanes) == ("eta", LATER_MS, A, ["a"])
    assert client.hget(keys.message(B), "state") == b"ready"
    assert not client.exists("old")


@pytest.mark.parametrize(("first", "last", "moved"), [(-1, -1, [A]), (-2, -2, [B]), (-9, -2, [B, C]), (-9, -4, [])])
def test_only_elements_between_the_indexes_are_moved(
    client: Redis, store: Store, first: int, last: int, moved: list[str]
) -> None:
    elements = [element(each, "a") for each in (A, B, C)]
    fill(client, *elements)
    assert store.adopt("old", elements, first=first, last=last).count(Adopted.MOVED) == len(moved)
    assert [each.decode() for each in client.zrange(keys.lane("a"), 0, -1)] == moved
    left = [each.stored for each in elements if each.message.id not in moved]
    assert client.lrange("old", 0, -1)[::-1] == left


def test_a_full_redis_moves_nothing(client: Redis, store: Store) -> None:
    some = [element(A, "a"), element(B, "a", at_ms=LATER_MS)]
    fill(client, *some)
    before = read(client)
    client.config_set("maxmemory", 1)
    try:
        for each in some:
            with pytest.raises(ResponseError, match=r"OOM|maxmemory"):
                store.adopt("old", [each], **ALL)
    finally:
        client.config_set("maxmemory", 0)
    assert read(client) == before


def test_a_queue_of_lanes_may_be_the_list(client: Redis, store: Store) -> None:
    """A message that a stock client has pushed onto the list of a lane queue."""
    seed(client, state_with(ready(C, "c")))
    foreign = element(A, "a")
    client.lpush("q", foreign.stored)
    assert store.adopt("q", [foreign], **ALL) == [Adopted.MOVED]
    assert read(client) == state_with(ready(C, "c"), ready(A, "a"), counts={"appended": 1})
