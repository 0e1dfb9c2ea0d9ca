"""renew, release, retry, park, sweep, reconcile: the verbs that extend a lease, or end it without a settle."""

from __future__ import annotations

import pytest
from redis import Redis

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Outcome, Store, keys, verbs
from celery_lanes.protocol.verbs import Swept
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    LEASE_MINUTES,
    LEASE_MS,
    MINUTE_MS,
    State,
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
GRACE_MINUTES = LEASE_MINUTES // 3
ERROR = {"type": "ValueError", "message": "no"}


def test_renew_extends_held_leases_and_names_lost_ones(client: Redis, store: Store) -> None:
    # Given a lease near its end, an expired one, and one that another holder has by now
    others = leased(C, "c", fence=9, holder="another", minutes=2)
    seed(client, state_with(leased(A, "a", minutes=1), leased(B, "b", minutes=-5), others))
    # When the holder renews all leases that it knows
    lost = store.renew([(A, fence(1)), (B, fence(1)), (C, fence(8)), (D, fence(1))], LEASE_MS)
    # Then those that were not taken are extended to a whole lease, with the same fence
    assert lost == [C, D]
    assert read(client) == state_with(leased(A, "a"), leased(B, "b"), others)


def test_a_released_message_is_ready_before_later_ones(client: Redis, store: Store) -> None:
    # Given a leased message, one behind it, and a later ready one of another lane
    seed(client, state_with(leased(A, "a", fence=4, failed=1, errors=("E",)), waiting(B, "a"), ready(C, "c"), bells=[]))
    # When it is released
    assert store.release([(A, fence(4))]) == []
    # Then it is ready before both, no death or failure is counted, and the bell of its queue is set
    assert read(client) == state_with(
        ready(A, "a", fence=5, failed=1, errors=("E",)), waiting(B, "a"), ready(C, "c"), counts={"released": 1}
    )


def test_release_counts_a_death(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", died=1)))
    assert store.release([(A, fence(1))], died=True) == []
    assert read(client) == state_with(ready(A, "a", fence=2, died=2, alive=0), counts={"released": 1})


def test_release_of_several_takes_only_held_leases(client: Redis, store: Store) -> None:
    given = [leased(B, "b", fence=7, holder="another"), delayed(C, "c", fence=2)]
    seed(client, state_with(leased(A, "a"), *given))
    assert store.release([(A, fence(1)), (B, fence(6)), (C, fence(1)), (A, fence(1)), (D, fence(1))]) == [B, C, A, D]
    assert read(client) == state_with(ready(A, "a", fence=2), *given, counts={"released": 1, "refused": 4})


def test_a_retried_message_stays_first_and_its_lanes_wait(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", "b", fence=4, failed=1, errors=("E",)), waiting(B, "b")))
    assert store.retry(A, fence(4), delay_ms=7 * MINUTE_MS, problem=ERROR) is Outcome.DONE
    assert read(client) == state_with(
        delayed(A, "a", "b", fence=5, minutes=7, failed=2, errors=("E", "ValueError")),
        waiting(B, "b"),
        counts={"retried": 1},
    )


def test_a_sweep_marks_its_worker_as_alive(client: Redis, store: Store) -> None:
    client.zadd(keys.WORKERS, {"gone:1:a 4": 1})
    for holder, slots in (("east:2:b", 4), ("west:3:c", 8), ("east:2:b", 4)):
        store.sweep(LEASE_MS, holder, slots)
    assert inspection.workers(client) == {"east:2:b": 4, "west:3:c": 8}
    assert client.zcard(keys.WORKERS) == 2


def test_a_parked_message_stays_first_and_counts_no_failure(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", "b", fence=4, failed=1, died=1, alive=3, errors=("E",)), waiting(B, "b")))
    assert store.park(A, fence(4), delay_ms=7 * MINUTE_MS, kind="Full", reason="no room") is Outcome.DONE
    assert read(client) == state_with(
        delayed(A, "a", "b", fence=5, minutes=7, failed=1, died=1, errors=("E",), parked="no room"),
        waiting(B, "b"),
        counts={"parked": 1},
    )
    assert client.hgetall(keys.PARKED) == {b"times Full q": b"1", b"ms Full q": str(7 * MINUTE_MS).encode()}


def test_a_retry_clears_an_earlier_park(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", fence=4, parked="no room", alive=3)))
    store.retry(A, fence(4), delay_ms=7 * MINUTE_MS, problem=ERROR)
    assert read(client) == state_with(
        delayed(A, "a", fence=5, minutes=7, failed=1, errors=("ValueError",)), counts={"retried": 1}
    )


def test_sweep_releases_expired_leases_and_due_retries(client: Redis, store: Store) -> None:
    # Given an expired lease and a valid one, a due retry and a later one
    left = [leased(C, "c", minutes=30), delayed(D, "d", minutes=20)]
    seed(client, state_with(leased(A, "a", minutes=-1), delayed(B, "b", minutes=-1), *left, waiting("1:14", "a")))
    # When a worker sweeps
    swept = store.sweep(LEASE_MS)
    # Then the first two are ready with newer fences, the expired lease counts as a death, and the bell is set
    assert (swept.expired, swept.due) == (1, 1)
    assert round((swept.next_ms or 0) / MINUTE_MS) == 20
    assert read(client) == state_with(
        ready(A, "a", fence=2, died=1, alive=LEASE_MINUTES + 1),
        ready(B, "b", fence=2, failed=1, errors=("E",)),
        *left,
        waiting("1:14", "a"),
        ready={"q": [A, B]},
        counts={"expired": 1},
        swept=0,
    )


def test_a_message_with_an_expired_lease_is_ready_before_later_ones(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(B, "b"), leased(A, "a", minutes=-1)))
    store.sweep(LEASE_MS)
    assert read(client).ready == {"q": [A, B]}


def test_sweep_leaves_a_lease_that_ends_soon(client: Redis, store: Store) -> None:
    given = state_with(leased(A, "a", minutes=1), waiting(B, "a"))
    seed(client, given)
    assert store.sweep(LEASE_MS).expired == 0
    assert read(client).messages == given.messages


def test_sweep_of_nothing(client: Redis, store: Store) -> None:
    assert store.sweep(LEASE_MS) == Swept(expired=0, due=0, next_ms=None)
    assert read(client) == State(swept=0)


def test_sweep_returns_the_time_of_the_next_expiry(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, minutes=10), delayed(B, minutes=20)))
    assert round((store.sweep(LEASE_MS).next_ms or 0) / MINUTE_MS) == 10


def test_sweep_handles_a_bounded_batch_oldest_first(
    client: Redis, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "SWEEP_LIMIT", 1)
    seed(
        client, state_with(leased(A, minutes=-1), leased(B, minutes=-2), delayed(C, minutes=-1), delayed(D, minutes=-2))
    )
    assert store.sweep(LEASE_MS) == Swept(expired=1, due=1, next_ms=0)
    state = read(client)
    assert (list(state.leases), list(state.delayed)) == ([A], [C])


def test_sweep_drops_entries_without_a_message(client: Redis, store: Store) -> None:
    given = [leased(A, "a"), delayed(B, "b")]
    seed(client, state_with(*given))
    client.zadd(keys.DELAYED, {"gone": 1, A: 1})
    client.zadd(keys.LEASES, {"gone": 1, B: 1})
    swept = store.sweep(LEASE_MS)
    assert (swept.expired, swept.due) == (0, 0)
    assert read(client) == state_with(*given, swept=0)


def test_after_a_gap_in_sweeping_leases_are_extended_once(client: Redis, store: Store) -> None:
    # Given that no worker swept, or could renew, for longer than a third of a lease
    others = [leased(B, "b", minutes=GRACE_MINUTES + 5), delayed(C, "c", minutes=-1)]
    seed(client, state_with(leased(A, "a", minutes=-10), *others, swept=GRACE_MINUTES + 1))
    # When a worker sweeps
    swept = store.sweep(LEASE_MS)
    # Then no lease expires: live holders have time to renew. A due retry is released as usual
    assert (swept.expired, swept.due) == (0, 1)
    due = ready(C, "c", fence=2, failed=1, errors=("E",))
    expected = state_with(leased(A, "a", minutes=GRACE_MINUTES), others[0], due, swept=0)
    assert read(client) == expected


def test_without_a_gap_in_sweeping_leases_expire(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", minutes=-1), swept=GRACE_MINUTES - 1))
    assert store.sweep(LEASE_MS).expired == 1


def test_a_lease_is_extended_only_once(client: Redis, store: Store) -> None:
    # Given a dead holder, and sweeps that are always more than a third of a lease apart
    seed(client, state_with(leased(A, "a", minutes=-1), swept=30))
    assert store.sweep(LEASE_MS).expired == 0
    time_passes(client, 30)
    # Then the lease expires at the second sweep
    assert store.sweep(LEASE_MS).expired == 1


def test_a_renewed_lease_can_be_extended_again(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", minutes=-1), swept=30))
    store.sweep(LEASE_MS)
    assert store.renew([(A, fence(1))], LEASE_MS) == []
    time_passes(client, LEASE_MINUTES + 10)
    assert store.sweep(LEASE_MS).expired == 0
    assert read(client).leases == {A: GRACE_MINUTES}


def time_passes(client: Redis, minutes: int) -> None:
    for member, at_ms in client.zrange(keys.LEASES, 0, -1, withscores=True):
        client.zadd(keys.LEASES, {member: at_ms - minutes * MINUTE_MS})
    client.decrby(keys.SWEPT, minutes * MINUTE_MS)


def test_reconcile_releases_leases_unknown_to_the_holder(client: Redis, store: Store) -> None:
    # Given a holder that did not receive its last reply: it knows B, but not A
    others = [leased(B, "b"), leased(C, "c", holder="another"), buried(D, "d")]
    behind = [waiting("1:14", "a"), ready("1:15")]
    seed(client, state_with(leased(A, "a", fence=4, died=1), *others, *behind))
    # When it reconciles
    assert store.reconcile("me", [B, D, "gone"]) == 1
    # Then A is ready again before a later message, uncounted, and no other message is affected
    assert read(client) == state_with(ready(A, "a", fence=5, died=1), *others, *behind, counts={"released": 1})
    assert store.reconcile("me", [B]) == 0


def test_reconcile_of_a_holder_without_messages(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A), leased(B)))
    assert store.reconcile("me", []) == 2
    assert read(client) == state_with(
        ready(A, fence=2), ready(B, fence=2), ready=read(client).ready, counts={"released": 2}
    )
