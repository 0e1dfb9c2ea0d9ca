"""Messages that follow a leased one are gathered into it before its run begins: they are one message from then on."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from celery_lanes.protocol import NewMessage, Rate, Store, keys
from celery_lanes.protocol.envelope import split
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    INTERRUPTING,
    LEASE_MS,
    MINUTE_MS,
    TALK,
    collecting,
    fence,
    group_field,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B, C, D = "1:10", "1:11", "1:12", "1:13"
GROUP = group_field(TALK)


def body_of(*ids: str, separator: str = "\x1e") -> str:
    return "".join(f"{separator}body of {each}" for each in ids)


def test_what_follows_becomes_one_message(client: Redis, store: Store) -> None:
    # Given a leased message, with others behind it in its lanes
    seed(client, state_with(leased(A, "a", "b"), waiting(B, "a", "b"), waiting(C, "a", "b"), waiting(D, "a")))
    # When some are gathered
    assert store.gather(A, fence(1), [B, C]) == 2
    # Then they are a part of it, and others wait behind it
    assert read(client) == state_with(
        leased(A, "a", "b", size=3, is_gathered=True, body=body_of(A, B, C)),
        waiting(D, "a"),
        counts={"collected": 2, "settled": 2},
    )
    assert store.pending("q") == 2
    # And a later run gets all of them, which are settled together
    store.release([(A, fence(1))])
    [again] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=1).leased
    assert again.is_gathered
    assert [each.decode() for each in split(again.stored)] == [f"body of {each}" for each in (A, B, C)]
    store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(A, again.fence)])
    assert read(client).messages == {D: ready(D, "a")}


def test_gathering_again_changes_nothing(client: Redis, store: Store) -> None:
    """The answer may have been lost."""
    seed(client, state_with(leased(A, "a"), waiting(B, "a"), waiting(C, "a")))
    assert store.gather(A, fence(1), [B]) == 1
    before = read(client)
    assert store.gather(A, fence(1), [B]) == 0
    assert read(client) == before


def test_an_old_fence_gathers_nothing(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", fence=3), waiting(B, "a")))
    before = read(client)
    assert store.gather(A, fence(2), [B]) is None
    before.counts["refused"] = 1
    assert read(client) == before


@pytest.mark.parametrize(
    "second",
    [
        waiting(B, "a", "b"),
        waiting(B, "a", queue="r"),
        waiting(B, "a", fence=1, died=1),
        waiting(B, "a", is_unstoppable=True),
        waiting(B, "a", due=10, has_turn=True),
        waiting(B, "a", body="a\x1eb"),
    ],
)
def test_what_cannot_be_gathered_stays_with_all_behind_it(client: Redis, store: Store, second: Any) -> None:
    seed(client, state_with(leased(A, "a"), second, waiting(C, "a")))
    before = read(client)
    assert store.gather(A, fence(1), [B, C]) == 0
    assert read(client) == before


def test_only_what_follows_directly_is_gathered(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a"), waiting(C, "a")))
    assert store.gather(A, fence(1), [C]) == 0
    assert store.gather(A, fence(1), []) == 0
    assert store.gather(A, fence(1), ["gone"]) == 0


@pytest.mark.parametrize(("own", "separator"), [(TALK, "\x1e"), (INTERRUPTING, "\x1d")])
def test_groups_are_gathered_whole(client: Redis, store: Store, own: Any, separator: str) -> None:
    # Given a group that is leased, and behind it another group, which still collects, and a single message
    seed(
        client,
        state_with(
            leased(A, "a", group=group_field(own), body=body_of(A, separator=separator)),
            waiting(B, "a", group=GROUP, size=2, due=10, body=body_of(B, "x")),
            waiting(C, "a"),
        ),
    )
    assert store.gather(A, fence(1), [B, C]) == 2
    assert read(client) == state_with(
        leased(
            A, "a", group=group_field(own), size=4, is_gathered=True, body=body_of(A, B, "x", C, separator=separator)
        ),
        counts={"collected": 2, "settled": 2},
    )
    assert read(client).collecting == {}


def test_nothing_joins_a_message_without_a_group(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a")))
    store.gather(A, fence(1), [B])
    store.append([NewMessage(C, "q", f"body of {C}", ["a"], group=TALK)])
    assert read(client).messages[C] == waiting(C, "a", group=GROUP, due=10, body=body_of(C))


def test_a_message_behind_is_ready_after_it(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a"), waiting(C, "a", group=GROUP, due=10, body=body_of(C))))
    store.gather(A, fence(1), [B])
    store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(A, fence(1))])
    assert read(client).messages == {C: collecting(C, "a", body=body_of(C))}


def test_a_gathered_message_counts_as_seen(client: Redis, store: Store) -> None:
    new = [NewMessage(f"1:{n}", "q", f"body of 1:{n}", ["a"], ("1", n)) for n in (1, 2)]
    store.append(new)
    [first] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=1).leased
    assert store.gather(first.id, first.fence, ["1:2"]) == 1
    again = store.append(new)
    assert (again.added, again.seen) == (0, 2)


def test_a_turn_of_a_follower_is_not_passed(client: Redis, store: Store) -> None:
    rate = Rate("ann", 1, 10 * MINUTE_MS, "delay")
    store.append([NewMessage(f"1:{n}", "q", f"body of 1:{n}", ["a"], ("1", n), rate=rate) for n in (1, 2)])
    [first] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=1).leased
    assert store.gather(first.id, first.fence, ["1:2"]) == 0
    assert client.exists(keys.message("1:2"))
