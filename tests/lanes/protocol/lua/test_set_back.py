"""The clock of Redis was set back: the time of the last sweep is in the future. What was counted from the clock before
is moved back with it, so that nothing waits for as long as that.
"""

from __future__ import annotations

import pytest
from redis import Redis

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import NewMessage, Outcome, SetTimer, Store, keys
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    LEASE_MINUTES,
    LEASE_MS,
    MINUTE_MS,
    TimerState,
    collecting,
    delayed,
    fence,
    held,
    leased,
    ready,
    seed,
    state_with,
)

A, B, C, D = (f"1:{number}" for number in range(10, 14))
#: By how many minutes the clock was set back.
BACK = 300


def test_nobody_holds_a_lease_for_longer_than_a_lease(client: Redis, store: Store) -> None:
    # Given a lease that a dead worker took before, and one that was taken since
    seed(client, state_with(leased(A, "a", minutes=BACK + 20), leased(B, "b", minutes=30), swept=-BACK))
    # When a worker sweeps
    swept = store.sweep(LEASE_MS)
    # Then the first ends a lease from now
    assert swept.set_back_ms == pytest.approx(BACK * MINUTE_MS, abs=MINUTE_MS)
    assert read(client) == state_with(leased(A, "a", minutes=LEASE_MINUTES), leased(B, "b", minutes=30), swept=0)
    # And the next sweep finds the clock as it is
    assert store.sweep(LEASE_MS).set_back_ms == 0


def test_delays_groups_and_holds_keep_their_length(client: Redis, store: Store) -> None:
    # Given messages that wait, of which one was delayed since the clock was set back
    before = [delayed(A, "a", minutes=BACK + 10), collecting(B, "b", due=BACK + 5), held(C, "c", minutes=BACK + 7)]
    seed(client, state_with(*before, delayed(D, "d", minutes=40), swept=-BACK))
    # When a worker sweeps, Then each waits for the rest of its time
    swept = store.sweep(LEASE_MS)
    after = [delayed(A, "a", minutes=10), collecting(B, "b", due=5), held(C, "c", minutes=7)]
    assert read(client) == state_with(*after, delayed(D, "d", minutes=40), swept=0)
    assert swept.next_ms == pytest.approx(5 * MINUTE_MS, abs=MINUTE_MS)


def test_timers_keep_their_times(client: Redis, store: Store) -> None:
    timers = [TimerState("me", "noon", A, BACK + 1), TimerState("me", "soon", B, 10)]
    seed(client, state_with(timers=timers, swept=-BACK))
    store.sweep(LEASE_MS)
    assert read(client) == state_with(timers=timers, swept=0)


def test_a_timer_that_was_set_for_a_minute_keeps_its_distance(client: Redis, store: Store) -> None:
    # Given timers that were set for half a minute, one of them with a commit, and one for a time of day
    seed(client, state_with(leased(A, "a")))
    store.schedule(NewMessage(B, "q", "timer", ["b"]), "me", "schedule", in_ms=30_000)
    commit = [SetTimer("me", "commit", C, "q", "timer", in_ms=30_000, lanes=["c"])]
    assert store.commit(A, fence(1), commit) is Outcome.DONE
    at_ms = inspection.now_us(client) // 1000 + 30_000
    store.schedule(NewMessage(D, "q", "timer", ["d"]), "me", "time of day", at_ms=at_ms)
    given = read(client)
    # When the clock is set back
    _pretend_set_back(client, keys.TIMERS)
    store.sweep(LEASE_MS)
    # Then only those of half a minute are still due in half a minute
    time_of_day = keys.timer("me", "time of day")
    assert read(client).timers == given.timers | {time_of_day: given.timers[time_of_day] + BACK}
    assert [timer.name for timer in store.timers("me")] == ["schedule", "commit", "time of day"]


def test_a_past_time_is_that_of_the_commit_if_asked(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a")))
    store.commit(
        A,
        fence(1),
        [
            SetTimer("me", "x", "x:", "q", "timer", at_ms=5, lanes=["b"]),
            SetTimer("me", "y", "y:", "q", "timer", at_ms=5, lanes=["b"], not_past=True),
        ],
    )
    now_ms = inspection.now_us(client) / 1000
    assert [timer.at_ms for timer in store.timers("me")] == [5, pytest.approx(now_ms, abs=MINUTE_MS)]


def test_times_since_a_death_are_not_negative(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a", fence=1, died=1, alive=-BACK, replayed=-BACK)))
    [leased_again] = store.turn(["q"], holder="w", lease_ms=LEASE_MS, room=1).leased
    assert (leased_again.alive_s, leased_again.replayed_s) == (0.0, 0.0)


def test_a_gap_from_before_holds_no_message(client: Redis, store: Store) -> None:
    # Given a gap below 103, for which messages would wait until long after the holds of now
    seed(client, state_with(missing={103: BACK}, seen={"1:0": {103, 106}}))
    # When a message above it arrives, Then it is not held
    message = NewMessage("1:107", "q", "body of 1:107", ["a"], once=("1", 107))
    assert store.append([message], hold_ms=10 * MINUTE_MS).held == 0
    given = {"seen": {"1:0": {103, 106, 107}}, "counts": {"appended": 1}, "last": {"1": 107}}
    assert read(client) == state_with(ready("1:107", "a"), **given)


def _pretend_set_back(client: Redis, zset: str) -> None:
    """As if the clock had been set back since the last sweep."""
    by_ms = BACK * MINUTE_MS
    for member, score in client.zrange(zset, 0, -1, withscores=True):
        client.zadd(zset, {member: score + by_ms})
    client.set(keys.SWEPT, inspection.now_us(client) // 1000 + by_ms)
