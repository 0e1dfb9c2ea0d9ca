"""Late verbs: a holder with an older fence changes nothing, whatever the current state of the message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from celery_lanes.protocol import Delete, Kind, Move, Noted, Outcome, Set, Store, keys
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    FENCES_FROM,
    LEASE_MS,
    MessageState,
    buried,
    delayed,
    fence,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B = "1:10", "1:11"

#: A verb of the old holder, with its fence; returns true if the reply says that the lease is lost.
LATE: dict[str, Callable[[Store, str], bool]] = {
    "settle": lambda store, old: (
        store.turn(["q"], holder="old", lease_ms=LEASE_MS, room=0, settles=[(A, old)]).lost == [A]
    ),
    "renew": lambda store, old: store.renew([(A, old)], LEASE_MS) == [A],
    "release": lambda store, old: store.release([(A, old)]) == [A],
    "release a death": lambda store, old: store.release([(A, old)], died=True) == [A],
    "retry": lambda store, old: store.retry(A, old, delay_ms=0, problem={"type": "E"}) is Outcome.LOST,
    "park": lambda store, old: store.park(A, old, delay_ms=0) is Outcome.LOST,
    "bury": lambda store, old: store.bury(A, old, {"type": "E"}) is Outcome.LOST,
    "commit": lambda store, old: store.commit(A, old, [Set("k", b"v"), Move("k", "l"), Delete("l")]) is Outcome.LOST,
    "skip": lambda store, old: store.commit(A, old, skipped=True) is Outcome.LOST,
    "read": lambda store, old: store.read(A, old, ["k"]) is None,
    "begin": lambda store, old: store.begin(A, old, lease_ms=LEASE_MS, position="1", what="x").noted is Noted.LOST,
    "end": lambda store, old: store.end(A, old, position="1", what="x", kind=Kind.DONE) is Outcome.LOST,
    "undo": lambda store, old: store.end(A, old, position="1", what="x", kind=Kind.UNDONE) is Outcome.LOST,
    "hold": lambda store, old: not store.holds(A, old),
}

#: The current state of the message. The old holder had fence 4.
MEANWHILE: dict[str, list[MessageState]] = {
    "leased to another holder": [leased(A, "a", fence=5, holder="new"), waiting(B, "a")],
    "leased to the same holder again": [leased(A, "a", fence=6, holder="old"), waiting(B, "a")],
    "released": [ready(A, "a", fence=5, died=1), waiting(B, "a")],
    "delayed": [delayed(A, "a", fence=5), waiting(B, "a")],
    "buried": [buried(A, "a", fence=5), ready(B, "a")],
    "replayed": [leased(B, "a"), waiting(A, "a", fence=5)],
    "settled": [ready(B, "a")],
}


@pytest.mark.parametrize("verb", LATE)
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_a_late_verb_is_refused_and_changes_nothing(client: Redis, store: Store, verb: str, meanwhile: str) -> None:
    given = MEANWHILE[meanwhile]
    journals = {} if meanwhile == "settled" else {A: {"1": "begun 4 x ", "last": "1"}}
    seed(client, state_with(*given, journals=journals))
    assert LATE[verb](store, fence(4))
    is_after_settle = verb in ("end", "undo") and meanwhile == "settled"  # the run may have settled the message itself
    refused = 0 if verb in ("renew", "read", "hold") or is_after_settle else 1
    assert read(client) == state_with(*given, journals=journals, counts={"refused": refused})


@pytest.mark.parametrize("given", [ready(A, fence=4), delayed(A, fence=4), buried(A, fence=4), waiting(A, fence=4)])
@pytest.mark.parametrize("verb", LATE)
def test_the_right_fence_without_a_lease_is_refused(
    client: Redis, store: Store, verb: str, given: MessageState
) -> None:
    seed(client, state_with(given))
    before = read(client)
    assert LATE[verb](store, fence(4))
    after = read(client)
    after.counts.pop("refused", None)
    assert after == before


@pytest.mark.parametrize(
    "take_back",
    [
        lambda store: store.release([(A, fence(4))]),
        lambda store: store.retry(A, fence(4), delay_ms=0, problem={}),
        lambda store: store.park(A, fence(4), delay_ms=0),
        lambda store: store.bury(A, fence(4), {}),
        lambda store: store.reconcile("me", []),
        lambda store: store.sweep(LEASE_MS),
    ],
    ids=["release", "retry", "park", "bury", "reconcile", "sweep"],
)
def test_fences_grow_when_the_clock_goes_back(
    client: Redis, store: Store, take_back: Callable[[Store], object]
) -> None:
    seed(client, state_with(leased(A, fence=4, minutes=-1)))
    take_back(store)
    assert client.hget(keys.message(A), "fence") == fence(5).encode()


def test_fences_follow_the_clock_after_a_failover(client: Redis, store: Store) -> None:
    # Given a message whose last hand-out was lost in a failover: its holder has a newer fence than the record
    seed(client, state_with(ready(A)))
    [lost] = store.turn(["q"], holder="old", lease_ms=LEASE_MS, room=1).leased
    client.flushall()
    seed(client, state_with(ready(A)))
    client.hset(keys.message(A), "fence", 4)
    # When it is handed out again
    [again] = store.turn(["q"], holder="new", lease_ms=LEASE_MS, room=1).leased
    # Then the new fence is newer than the lost one
    assert FENCES_FROM > int(again.fence) > int(lost.fence)
    assert LATE["settle"](store, lost.fence)
