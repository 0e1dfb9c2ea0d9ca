"""commit: the writes of a run are made in the step that settles its message, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from celery_lanes.protocol import Add, Delete, Move, Outcome, Push, Read, Set, SetTimer, Store, Write, keys
from celery_lanes.protocol.verbs import UNFINISHED, commit
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    KEPT,
    LEASE_MS,
    MINUTE_MS,
    buried,
    fence,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)
from tests.support.waiting import until

A, B, C = "1:10", "1:11", "1:12"


def kept(client: Redis) -> dict[str, str]:
    """The values of the other keys, with the minutes until they expire. Deletes these keys."""
    found = {}
    for key in client.scan_iter(f"{KEPT}*"):
        left_ms = client.pttl(key)
        found[key.decode().removeprefix(KEPT)] = client.get(key).decode() + (
            "" if left_ms < 0 else f" for {round(left_ms / MINUTE_MS)}"
        )
        client.delete(key)
    return found


def test_a_commit_writes_and_settles(client: Redis, store: Store) -> None:
    # Given a message that failed before, and others behind it
    seed(
        client,
        state_with(leased(A, "a", "b", fence=4, failed=1, errors=("E",)), waiting(B, "a"), waiting(C, "b"), bells=[]),
    )
    # When it is committed
    assert store.commit(A, fence(4), [Set(f"{KEPT}x", b"1"), Set(f"{KEPT}y", b"2", 5 * MINUTE_MS)]) is Outcome.DONE
    # Then both keys are written, no key of the message is left, and the others are ready
    assert kept(client) == {"x": "1", "y": "2 for 5"}
    assert read(client) == state_with(ready(B, "a"), ready(C, "b"), counts={"settled": 1})


def test_a_commit_counts_and_lists(client: Redis, store: Store) -> None:
    # Given two messages
    seed(client, state_with(leased(A, fence=1), leased(B, fence=2), bells=[]))
    # When both add to a hash and a list
    for message_id, number in ((A, 1), (B, 2)):
        writes = [Add(f"{KEPT}hash", "sum", number), Push(f"{KEPT}list", str(number))]
        assert store.commit(message_id, fence(number), writes) is Outcome.DONE
    # Then the sum and the list have both, also after a second commit, which is refused
    assert store.commit(A, fence(1), [Add(f"{KEPT}hash", "sum", 1)]) is Outcome.LOST
    assert (client.hgetall(f"{KEPT}hash"), client.lrange(f"{KEPT}list", 0, -1)) == ({b"sum": b"3"}, [b"1", b"2"])


@pytest.mark.parametrize(
    ("writes", "left"),
    [
        ([], {"old": "o for 5", "new": "n"}),
        ([Set(f"{KEPT}old", b"v")], {"old": "v", "new": "n"}),
        ([Set(f"{KEPT}new", b"v\x00"), Delete(f"{KEPT}old")], {"new": "v\x00"}),
        ([Delete(f"{KEPT}none")], {"old": "o for 5", "new": "n"}),
        ([Move(f"{KEPT}old", f"{KEPT}new")], {"new": "o for 5"}),
        ([Move(f"{KEPT}none", f"{KEPT}new")], {"old": "o for 5", "new": "n"}),
        ([Move(f"{KEPT}old", f"{KEPT}new"), Set(f"{KEPT}new", b"v")], {"new": "v"}),
        ([Set(f"{KEPT}old", b"v"), Move(f"{KEPT}old", f"{KEPT}far"), Delete(f"{KEPT}new")], {"far": "v"}),
    ],
)
def test_writes_are_made_in_order(client: Redis, store: Store, writes: Sequence[Write], left: dict[str, str]) -> None:
    seed(client, state_with(leased(A)))
    client.set(f"{KEPT}old", "o", px=5 * MINUTE_MS)
    client.set(f"{KEPT}new", "n")
    assert store.commit(A, fence(1), writes) is Outcome.DONE
    assert kept(client) == left


@pytest.mark.parametrize("old", [4, 6])
def test_an_old_fence_writes_nothing(client: Redis, store: Store, old: int) -> None:
    given = [leased(A, "a", fence=5, holder="another"), waiting(B, "a")]
    seed(client, state_with(*given))
    client.set(f"{KEPT}x", "1")
    writes = [Set(f"{KEPT}x", b"2"), Move(f"{KEPT}x", f"{KEPT}y"), Set(f"{KEPT}z", b"3")]
    assert store.commit(A, fence(old), writes) is Outcome.LOST
    assert kept(client) == {"x": "1"}
    assert read(client) == state_with(*given, counts={"refused": 1})


def test_a_second_commit_is_refused(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a")))
    assert store.commit(A, fence(1), [Set(f"{KEPT}x", b"1")]) is Outcome.DONE
    assert store.commit(A, fence(1), [Set(f"{KEPT}x", b"2")]) is Outcome.LOST
    # And a later settle is refused
    assert store.turn([], holder="me", lease_ms=LEASE_MS, room=0, settles=[(A, fence(1))]).lost == [A]
    assert kept(client) == {"x": "1"}
    assert read(client) == state_with(counts={"settled": 1, "refused": 2})


def test_a_skipped_message_counts_as_settled_and_skipped(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a"), bells=[]))
    assert store.commit(A, fence(1), skipped=True) is Outcome.DONE
    assert read(client) == state_with(ready(B, "a"), counts={"settled": 1, "skipped": 1})


def many_writes(count: int) -> list[Write]:
    """Timers due at once and writes whose order matters."""
    timers = [SetTimer("a", f"n{n}", f"t{n}", "q", b"x", at_ms=1) for n in range(count)]
    return [Set(f"{KEPT}x", b"1"), *timers, Set(f"{KEPT}x", b"2")]


def test_a_large_commit_is_done_in_short_steps(client: Redis, store: Store) -> None:
    # Given a message with others behind it, whose run sets 3,000 timers
    seed(client, state_with(leased(A, "a"), waiting(B, "a"), bells=[]))
    client.config_resetstat()
    # When it commits
    assert store.commit(A, fence(1), many_writes(3_000)) is Outcome.DONE
    # Then it takes a step for each 64 writes, first to store and then to do them; every write is done, in order
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] >= 2 * 3_002 / 64
    assert kept(client) == {"x": "2"}
    assert client.zcard(keys.TIMERS) == 3_000
    assert (client.hget(keys.message(B), "state"), client.exists(keys.message(A))) == (b"ready", 0)
    assert list(client.scan_iter(f"{keys.STAGED}*")) == []


def test_a_sweep_ends_a_large_commit_whose_worker_died(client: Redis, store: Store) -> None:
    # Given a large commit that was decided, and whose worker died then
    seed(client, state_with(leased(A, "a"), waiting(B, "a"), bells=[]))
    *stages, decide = commit(A, fence(1), many_writes(200))
    store.run_all(*stages)
    assert client.zcard(keys.TIMERS) == 0
    assert store.run(decide) == UNFINISHED
    # When its old lease is used, a round of repairs runs, and a message joins its lane, nothing is handed out
    assert store.commit(A, fence(1)) is Outcome.LOST
    assert store.release([(A, fence(1))]) == [A]
    assert store.repair("0", LEASE_MS)[1] == 0
    assert store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased == []
    # Then sweeps do the rest, and the lane continues
    until(lambda: store.sweep(LEASE_MS) is not None and not client.exists(keys.message(A)))
    assert kept(client) == {"x": "2"}
    until(lambda: store.sweep(LEASE_MS) is not None and client.zcard(keys.TIMERS) == 0)
    assert (store.look().appended, client.zcard(keys.LANE + "a")) == (200, 201)
    assert client.zrange(keys.LANE + "a", 0, 0) == [B.encode()]


def test_a_large_commit_with_an_old_fence_writes_nothing(client: Redis, store: Store) -> None:
    given = [leased(A, "a", fence=5, holder="another")]
    seed(client, state_with(*given))
    assert store.commit(A, fence(4), many_writes(200)) is Outcome.LOST
    assert read(client) == state_with(*given, counts={"refused": 1})


def test_a_large_commit_whose_writes_were_not_stored_changes_nothing(client: Redis, store: Store) -> None:
    # Given a commit of which Redis has lost a part of the writes
    seed(client, state_with(leased(A, "a")))
    first, *_, decide = commit(A, fence(1), many_writes(200))
    store.run(first)
    # Then it is refused, and it can be made again
    with pytest.raises(ResponseError, match="are not stored"):
        store.run(decide)
    assert kept(client) == {}
    assert store.commit(A, fence(1), many_writes(200)) is Outcome.DONE
    assert client.zcard(keys.TIMERS) == 200


def test_the_holder_reads_its_lanes_and_requested_keys(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "1/order:7", "1/user:9"), leased(B), buried(C, "c")))
    client.set("x", b"\xff1")
    assert store.read(A, fence(1), ["x", "y"]) == Read(["1/order:7", "1/user:9"], [b"\xff1", None])
    assert store.read(B, fence(1), []) == Read([], [])
    assert store.read(C, fence(1), ["x"]) is None
    assert store.read("gone", fence(1), ["x"]) is None
