"""move_out: messages that no worker has leave their lanes for an ordinary list, in one step."""

from __future__ import annotations

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from celery_lanes.protocol import Kind, Leaving, Limited, NewMessage, Store, keys
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import delayed, fence, leased, ready, seed, state_with, waiting

A, B, C = "1:10", "1:11", "1:12"


def leaving(message_id: str, stored: str | None = None) -> Leaving:
    return Leaving(message_id, (stored or f"body of {message_id}").encode(), f"element {message_id}".encode())


def listed(client: Redis) -> list[str]:
    """The next one for a worker of kombu first."""
    return [each.decode().removeprefix("element ") for each in client.lrange("old", 0, -1)[::-1]]


def test_messages_leave_in_the_order_of_their_lanes(client: Redis, store: Store) -> None:
    seed(client, state_with(delayed(A, "a", failed=1), waiting(B, "a", "b"), waiting(C, "b"), ready("1:13", "c")))
    assert store.move_out("old", map(leaving, (A, B, C, "1:13"))) == [True] * 4
    assert listed(client) == [A, B, C, "1:13"]
    client.delete("old", keys.bell("q"))
    assert read(client) == state_with(counts={"settled": 4})


def test_what_runs_stays_and_what_is_behind_it(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a", "b"), waiting(C, "b"), waiting("1:13", "c")))
    assert store.move_out("old", map(leaving, (A, B, C))) == [False] * 3
    assert listed(client) == []
    # When it has ended, they leave
    store.turn(["q"], holder="w", lease_ms=60_000, room=0, settles=[(A, fence(1))])
    assert store.move_out("old", map(leaving, (A, B, C))) == [False, True, True]
    assert listed(client) == [B, C]


def test_permits_go_to_the_oldest_message_that_stays(client: Redis, store: Store) -> None:
    one = [Limited("x", 1)]
    lanes = {A: one, B: ["a"], C: ["a", *one], "1:13": one}
    store.append([NewMessage(each, "q", f"body of {each}", keys) for each, keys in lanes.items()])
    # When the one with the permit leaves, and then the one before C, which did not wait for a permit until now
    assert store.move_out("old", map(leaving, (A, B))) == [True, True]
    # Then C gets it, not the newer message that waited for it
    state = read(client)
    assert (state.ready["q"], state.permits["x"], state.gates["x"]) == ([C], [C], ["1:13"])


def test_what_has_changed_or_has_more_than_a_message_stays(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a")))
    assert store.move_out("old", [leaving(A, "another body")]) == [False]
    [held] = store.turn(["q"], holder="w", lease_ms=60_000, room=1).leased
    store.begin(held.id, held.fence, lease_ms=60_000, position="1", what="x")
    store.end(held.id, held.fence, position="1", what="x", kind=Kind.DONE)
    store.release([(held.id, held.fence)], died=True)
    assert store.move_out("old", [leaving(A)]) == [False]
    assert not client.exists("old")


def test_a_timer_leaves_unless_it_is_over(client: Redis, store: Store) -> None:
    store.schedule(NewMessage(A, "q", b"x", ["a"]), f"task {A}", "eta", in_ms=60_000)
    timer = Leaving(A, b"x", f"element {A}".encode(), (f"task {A}", "eta"))
    assert [store.move_out("old", [timer]) for _ in range(2)] == [[True], [False]]
    assert listed(client) == [A]
    assert store.timers(f"task {A}") == []


def test_a_list_that_is_none_or_a_full_redis_loses_nothing(client: Redis, store: Store) -> None:
    given = state_with(ready(A, "a"), waiting(B, "a"))
    seed(client, given)

    def refused() -> None:
        with pytest.raises(ResponseError):
            store.move_out("old", map(leaving, (A, B)))

    client.set("old", "no list")
    refused()
    client.delete("old")
    client.config_set("maxmemory", 1)
    try:
        refused()
    finally:
        client.config_set("maxmemory", 0)
    assert read(client) == given
