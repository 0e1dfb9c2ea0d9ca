"""Timers of a commit may have other lanes than the committed message, and are found by their owners."""

from __future__ import annotations

from redis import Redis

from celery_lanes.protocol import NewMessage, Outcome, SetTimer, Store
from tests.lanes.protocol.lua.model.state import LEASE_MS

QUEUE, OTHER = "t.0", "t.1"


def test_lanes_of_timers_that_a_commit_sets(client: Redis, store: Store) -> None:
    # Given a leased message with two lanes
    store.append([NewMessage("1:1", QUEUE, b"{}", ["1/a", "1/b"])])
    [leased] = store.turn([QUEUE], holder="w", lease_ms=LEASE_MS, room=1).leased
    # When it is committed with a timer for its own lanes, and one for another lane and queue
    own = SetTimer("1/a", "own", "1:timer:", "", b"{}", in_ms=60_000)
    other = SetTimer("1/c", "other", "1:timer:", OTHER, b"{}", at_ms=0, lanes=["1/c"])
    assert store.commit(leased.id, leased.fence, [own, other]) is Outcome.DONE
    # Then each has its lanes and its queue
    found = [(timer.name, timer.queue, timer.lanes) for timer in store.timers("1/c", "1/none", "1/a")]
    assert found == [("other", OTHER, ["1/c"]), ("own", QUEUE, ["1/a", "1/b"])]
    # And the one that is due joins its own lane
    store.sweep(LEASE_MS)
    [fired] = store.turn([OTHER], holder="w", lease_ms=LEASE_MS, room=1).leased
    assert client.hget(f"lanes:message:{fired.id}", "lanes") == b"1/c"


def test_owners_of_timers(client: Redis, store: Store) -> None:
    for owner in ("1/job*/a", "1/job*/b", "1/jobs/a", "2/job*/a"):
        for name in ("x", "y"):
            store.schedule(NewMessage("1:timer:", QUEUE, b"{}", ["1/a"]), owner, name, in_ms=60_000)
    assert store.timer_owners("1/job*/") == ["1/job*/a", "1/job*/b"]
    assert store.timers() == []
    client.flushdb()
