"""Successors: a message that is published while one with its id runs joins its lanes when that one is settled."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from celery_lanes.protocol import Appended, NewMessage, Outcome, Store
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    CLOCK,
    LEASE_MS,
    TimerState,
    buried,
    delayed,
    fence,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B, C = "1:10", "1:11", "1:12"


def new(message_id: str, *lanes: str, **more: Any) -> NewMessage:
    return NewMessage(message_id, "q", "next", lanes, **({"after_run": True} | more))


def succeeding(message_id: str, *lanes: str) -> dict[str, str]:
    return {message_id: "q\t" + "\n".join(lanes) + "\tnext"}


def settle(store: Store, *ids: str, room: int = 0) -> Any:
    settles = [(message_id, fence(1)) for message_id in ids]
    return store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=room, settles=settles)


@pytest.mark.parametrize("settles", ["a fetch", "a commit"])
def test_it_joins_the_end_of_its_lanes_when_the_other_is_settled(client: Redis, store: Store, settles: str) -> None:
    # Given a running message with another one behind it
    given = [leased(A, "a"), waiting(B, "a")]
    seed(client, state_with(*given))
    # When one with its id is published, twice, and another one follows
    assert store.append([new(A, "a", "b")]) == Appended(added=1, seen=0, buried=0, pending=2, joined=1)
    assert store.append([new(A, "a", "b")]).seen == 1
    store.append([new(C, "b")])
    assert read(client) == state_with(
        *given, ready(C, "b", body="next"), successors=succeeding(A, "a", "b"), counts={"appended": 1, "seen": 1}
    )
    # Then it follows when the first one is settled
    if settles == "a commit":
        assert store.commit(A, fence(1)) is Outcome.DONE
    else:
        settle(store, A)
    assert read(client) == state_with(
        ready(B, "a"),
        ready(C, "b", body="next"),
        waiting(A, "a", "b", body="next"),
        ready={"q": [C, B]},
        counts={"appended": 2, "seen": 1, "settled": 1},
    )


def test_the_turn_that_settles_hands_it_out(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), leased(B, "b"), bells=[]))
    store.append([new(A, "a")])
    turned = settle(store, A, B, room=1)
    assert [(each.id, each.stored) for each in turned.leased] == [(A, b"next")]
    assert read(client) == state_with(
        leased(A, "a", fence=CLOCK, body="next"), counts={"appended": 1, "settled": 2, "handed_out": 1}
    )


@pytest.mark.parametrize("given", [ready(A, "a"), delayed(A, "a"), buried(A, "a")], ids=lambda each: each.state)
def test_a_message_that_does_not_run_has_none(client: Redis, store: Store, given: Any) -> None:
    seed(client, state_with(given))
    assert store.append([new(A, "a")]).seen == 1
    assert not store.schedule(new(A, "a"), "me", "x", in_ms=LEASE_MS)
    assert read(client) == state_with(given, counts={"seen": 1})


def test_a_duplicate_is_none(client: Redis, store: Store) -> None:
    # Given a running message whose number is remembered
    seed(client, state_with(leased(A, "a"), seen={"1:0": {10}}))
    # Then neither its number nor, without `after_run`, its id is published again
    assert store.append([new(A, "a", once=("1", 10)), new(A, "a", after_run=False)]).seen == 2
    assert not store.schedule(new(A, "a", after_run=False), "me", "x", in_ms=LEASE_MS)
    assert read(client) == state_with(leased(A, "a"), seen={"1:0": {10}}, counts={"seen": 2})


def test_it_outlives_the_death_of_the_worker(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a")))
    store.append([new(A, "a")])
    # When the worker dies, and the next run publishes it again
    store.release([(A, fence(1))], died=True)
    [again] = store.turn(["q"], holder="w", lease_ms=LEASE_MS, room=1).leased
    assert store.append([new(A, "a")]).seen == 1
    store.turn(["q"], holder="w", lease_ms=LEASE_MS, room=0, settles=[(A, again.fence)])
    # Then it runs once
    state = read(client)
    assert (state.bodies, state.ready, state.successors) == ({A: "next"}, {"q": [A]}, {})


def test_it_waits_behind_a_buried_one_until_that_is_dropped(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a")))
    store.append([new(A, "a")])
    store.bury(A, fence(1), {"type": "E"})
    assert read(client).successors == succeeding(A, "a")
    store.drop(A)
    assert read(client) == state_with(ready(A, "a", body="next"), counts={"appended": 1, "buried": 1, "dropped": 1})


def test_it_may_have_an_eta(client: Redis, store: Store) -> None:
    # Given timers of a running message: an eta of its task that is due now, and one of another owner
    seed(client, state_with(leased(A, "a")))
    assert store.schedule(new(A, "a"), f"task {A}", "eta", in_ms=LEASE_MS)
    later = TimerState(f"task {A}", "eta", A, 60, ("a",), body="next")
    assert read(client) == state_with(leased(A, "a"), timers=[later], counts={"scheduled": 1})
    # When both are due while the message runs
    for owner, name in ((f"task {A}", "eta"), ("me", "x")):
        assert store.schedule(new(A, "a"), owner, name, in_ms=0)
    # Then only the task succeeds it
    assert read(client) == state_with(
        leased(A, "a"), successors=succeeding(A, "a"), bells=["q"], counts={"scheduled": 3, "fired": 1}
    )
