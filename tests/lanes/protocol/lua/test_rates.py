"""A rate limits how many messages of a key are appended: `most` at once, then one in every `per_ms / most`."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from celery_lanes.errors import PublishRefused
from celery_lanes.protocol import Group, NewMessage, Rate, Store, keys
from celery_lanes.protocol.messages import append_row
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    CLOCK,
    INTERRUPTING,
    LEASE_MS,
    MINUTE_MS,
    MOST,
    TALK,
    collecting,
    group_field,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

#: Two at once, and then one in every ten minutes.
SLOW = Rate("ann", 2, 20 * MINUTE_MS)
DELAYED, MARKED = SLOW._replace(over="delay"), SLOW._replace(over="mark")


def limited(number: int, rate: Rate | None = SLOW, *lanes: str, **more: Any) -> NewMessage:
    return NewMessage(f"1:{number}", "q", f"body of 1:{number}", lanes or ["a"], ("1", number), rate=rate, **more)


def lease(store: Store, room: int = 9) -> list[tuple[str, bool]]:
    """Lease the ready messages: the ids, and whether each is marked."""
    fetched = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=room)
    return [(each.id, each.is_marked) for each in fetched.leased]


def pass_minutes(client: Redis, minutes: int, key: str = "ann") -> None:
    """Let time pass for a rate, and for the messages that wait."""
    record = client.get(keys.RATE + key)
    assert isinstance(record, bytes)
    full, at, marked = map(int, record.split())
    past_us = minutes * MINUTE_MS * 1000
    client.set(keys.RATE + key, f"{full - past_us} {at} {max(marked - past_us, 0)}")
    for message_id, due_ms in client.zrange(keys.COLLECTING, 0, -1, withscores=True):
        client.zadd(keys.COLLECTING, {message_id: due_ms - minutes * MINUTE_MS - 1})  # a turn is rounded up


def test_a_message_over_its_rate_is_dropped_and_remembered(client: Redis, store: Store) -> None:
    # When more messages arrive than the key may have
    appended = store.append([limited(n) for n in range(1, 6)])
    # Then the first ones are added, and of the others only the numbers are kept
    assert (appended.added, appended.over_rate, appended.seen, appended.pending) == (2, 3, 0, 2)
    expected = state_with(
        ready("1:1", "a"),
        waiting("1:2", "a"),
        seen={"1:0": [1, 2, 3, 4, 5]},
        counts={"appended": 2, "rate_dropped": 3},
    )
    expected.rates = {"ann": (20, 0)}
    assert read(client) == expected
    # And they are not added later either
    pass_minutes(client, 60)
    assert (store.append([limited(4)]).seen, store.append([limited(6)]).added) == (1, 1)


def test_a_message_that_was_seen_is_not_counted(store: Store) -> None:
    # Given an append whose answer was lost, so that the same messages arrive again and again
    for _ in range(5):
        store.append([limited(1)])
    # Then it counts once: another one fits, and not a third
    assert (store.append([limited(2)]).added, store.append([limited(3)]).over_rate) == (1, 1)


def test_a_repeated_batch_has_the_same_outcome(client: Redis, store: Store) -> None:
    batch = [limited(n, DELAYED) for n in range(1, 5)]
    first = store.append(batch)
    before = read(client)
    again = store.append(batch)
    assert (first.added, again.added, again.seen) == (4, 0, 4)
    assert (read(client).rates, read(client).messages) == (before.rates, before.messages)


def test_the_rate_recovers_evenly(client: Redis, store: Store) -> None:
    store.append([limited(1), limited(2)])
    pass_minutes(client, 9)
    assert store.append([limited(3)]).over_rate == 1
    pass_minutes(client, 1)
    assert store.append([limited(4), limited(5)]).over_rate == 1
    pass_minutes(client, 30)
    assert store.append([limited(n) for n in (6, 7, 8)]).over_rate == 1


def test_keys_have_rates_of_their_own(store: Store) -> None:
    bob = SLOW._replace(key="bob")
    appended = store.append([limited(1), limited(2), limited(3), limited(4, bob), limited(5, None), limited(6, bob)])
    assert (appended.added, appended.over_rate) == (5, 1)


@pytest.mark.parametrize(("most", "per_ms"), [(1, 1), (7, 1_000), (3, 10**9), (10**5, 60_000)])
def test_any_rate_admits_as_many_at_once(store: Store, most: int, per_ms: int) -> None:
    rate = Rate("ann", most, per_ms)
    added = min(most, 30)
    appended = store.append([limited(n, rate, f"lane {n}") for n in range(1, 32)])
    assert appended.added == (31 if most > 30 else added)


def test_a_record_is_deleted_when_the_key_may_have_all_again(client: Redis, store: Store) -> None:
    store.append([limited(1)])
    assert 9 * MINUTE_MS < client.pttl(keys.RATE + "ann") <= 10 * MINUTE_MS
    store.append([limited(2, MARKED), limited(3, MARKED)])
    assert 19 * MINUTE_MS < client.pttl(keys.RATE + "ann") <= 20 * MINUTE_MS


def test_without_rates_nothing_is_stored(client: Redis, store: Store) -> None:
    store.append([limited(1, None)])
    assert not [*client.scan_iter(keys.RATE + "*")]


# -- over="delay"


def test_a_delayed_message_waits_for_its_turn_and_its_lane_with_it(client: Redis, store: Store) -> None:
    # When messages over the rate arrive, and others behind them
    store.append([limited(n, DELAYED) for n in range(1, 5)] + [limited(5, None), limited(6, None, "b")])
    # Then they wait in their places, each until its turn
    expected = state_with(
        ready("1:1", "a"),
        waiting("1:2", "a"),
        waiting("1:3", "a", due=10, has_turn=True),
        waiting("1:4", "a", due=20, has_turn=True),
        waiting("1:5", "a"),
        ready("1:6", "b"),
        seen={"1:0": range(1, 7)},
        counts={"appended": 6, "rate_delayed": 2},
    )
    expected.rates = {"ann": (40, 0)}
    assert read(client) == expected
    # And the lane stays behind them, not a worker
    assert lease(store) == [("1:1", False), ("1:6", False)]
    settle(client, store, "1:1")
    assert lease(store) == [("1:2", False)]
    settle(client, store, "1:2")
    assert read(client).messages["1:3"] == collecting("1:3", "a", group=None, due=10, has_turn=True)
    assert lease(store) == []
    # When its turn has come, the next fetch gets it: without a sweep, without an attempt
    pass_minutes(client, 10)
    [third] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert (third.id, third.is_first) == ("1:3", True)
    assert read(client).messages["1:3"] == leased("1:3", "a", fence=CLOCK)
    # And so on, in order
    pass_minutes(client, 10)
    settle(client, store, "1:3")
    assert lease(store) == [("1:4", False)]
    settle(client, store, "1:4")
    assert lease(store) == [("1:5", False)]


def settle(client: Redis, store: Store, message_id: str) -> None:
    fence = client.hget(keys.message(message_id), "fence")
    assert isinstance(fence, bytes)
    assert store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(message_id, fence.decode())]).lost == []


def test_a_worker_learns_when_a_turn_comes(client: Redis, store: Store) -> None:
    store.append([limited(n, DELAYED, f"lane {n}") for n in range(1, 4)])
    assert client.llen(keys.bell("q")) == 1
    due_s = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).due_s
    assert due_s is not None
    assert 9 * 60 < due_s <= 10 * 60 + 1


def test_a_delayed_message_without_lanes_waits_too(client: Redis, store: Store) -> None:
    row = [limited(n, DELAYED)._replace(lanes=[]) for n in (1, 2, 3)]
    store.append(row)
    assert {each for each, _ in lease(store)} == {"1:1", "1:2"}
    pass_minutes(client, 10)
    assert lease(store) == [("1:3", False)]


def test_delayed_messages_of_a_group_wait_for_the_turn_of_the_last_one(client: Redis, store: Store) -> None:
    # Given a rate that the first two messages of a conversation use up
    store.append([limited(n, DELAYED, group=TALK) for n in (1, 2, 3, 4, 5)])
    # Then the others are a group of their own, which waits for the turn of the last one, also behind the first
    group = group_field(TALK)
    bodies = {n: "".join(f"\x1ebody of 1:{each}" for each in names) for n, names in ((1, (1, 2)), (3, (3, 4, 5)))}
    expected = state_with(
        ready("1:1", "a", group=group, size=2, body=bodies[1]),
        waiting("1:3", "a", group=group, size=3, body=bodies[3], due=30, has_turn=True),
        seen={"1:0": range(1, 6)},
        counts={"appended": 2, "collected": 3, "rate_delayed": 3},
    )
    expected.rates = {"ann": (50, 0)}
    assert read(client) == expected
    # And a message behind it does not make it due
    store.append([limited(6, None)])
    assert read(client).collecting == {"1:3": 30}
    # When its turn has come, it runs as one
    assert lease(store) == [("1:1", False)]
    pass_minutes(client, 30)
    settle(client, store, "1:1")
    [found] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert (found.id, found.stored) == ("1:3", bodies[3].encode())


def test_a_delayed_message_ends_no_run(client: Redis, store: Store) -> None:
    # Given a run that a message of its group would end, and a rate that is used up
    seed(client, state_with(leased("1:3", "a", group=group_field(INTERRUPTING))))
    store.append([limited(1, DELAYED, "b"), limited(2, DELAYED, "b")])
    # When such a message arrives over the rate
    store.append([limited(4, DELAYED, group=INTERRUPTING)])
    # Then it waits behind the run
    found = client.hmget(keys.message("1:3"), "state", "interrupted", "size")
    assert found == [b"leased", None, None]
    assert client.hget(keys.message("1:4"), "state") == b"waiting"


def test_a_stop_makes_a_delayed_message_ready(client: Redis, store: Store) -> None:
    store.append([limited(n, DELAYED, f"lane {n}") for n in (1, 2, 3)])
    assert len(lease(store)) == 2
    store.append([NewMessage("1:4", "q", "body of 1:4", ["lane 3"], stops=True)])
    assert lease(store) == [("1:3", False)]


def test_a_clock_that_is_set_back_delays_nothing_for_longer(client: Redis, store: Store) -> None:
    # Given a rate that is used up, and a message that waits, when the clock was an hour ahead
    hour = 60 * MINUTE_MS
    store.append([limited(n, DELAYED) for n in (1, 2, 3)])
    record = client.get(keys.RATE + "ann")
    assert isinstance(record, bytes)
    full, at, marked = (int(each) + hour * 1000 for each in record.split())
    client.set(keys.RATE + "ann", f"{full} {at} {marked}")
    # Then the next one waits for as long as without that
    store.append([limited(4, DELAYED)])
    assert read(client).collecting == {"1:3": 10, "1:4": 20}


def test_a_rate_that_is_not_delayed_any_more_recovers_within_its_time(client: Redis, store: Store) -> None:
    store.append([limited(n, DELAYED) for n in range(1, 9)])
    assert store.append([limited(9)]).over_rate == 1
    assert read(client).rates == {"ann": (20, 0)}


# -- over="mark"


def test_the_first_message_over_its_rate_is_marked(client: Redis, store: Store) -> None:
    appended = store.append([limited(n, MARKED, group=TALK) for n in range(1, 6)])
    assert (appended.added, appended.over_rate) == (3, 2)
    # Then it has its place behind the others, alone
    state = read(client)
    assert state.messages["1:3"] == waiting("1:3", "a", fence=CLOCK, is_marked=True, body="\x1ebody of 1:3")
    assert (state.rates, state.counts) == (
        {"ann": (20, 20)},
        {"appended": 2, "collected": 1, "rate_marked": 1, "rate_dropped": 2},
    )
    # And nothing joins it
    store.append([limited(6, None, group=TALK)])
    assert read(client).messages["1:6"].size == 1
    assert lease(store) == [("1:1", False)]
    settle(client, store, "1:1")
    assert lease(store) == [("1:3", True)]
    # And a later run of it is marked too
    store.release([("1:3", str(client.hget(keys.message("1:3"), "fence"), "ascii"))])  # type: ignore[arg-type]
    assert lease(store) == [("1:3", True)]


def test_one_is_marked_within_the_time_of_the_rate(client: Redis, store: Store) -> None:
    store.append([limited(n, MARKED, f"lane {n}") for n in range(1, 4)])
    # Given that the key may have messages again, and uses them up
    pass_minutes(client, 19)
    appended = store.append([limited(n, MARKED, f"lane {n}") for n in range(4, 7)])
    assert (appended.added, appended.over_rate) == (1, 2)
    # When the time is over, one is marked again
    pass_minutes(client, 1)
    store.append([limited(n, MARKED, f"lane {n}") for n in range(7, 10)])
    assert [each for each, is_marked in lease(store, 99) if is_marked] == ["1:3", "1:8"]


# -- messages that are held for lower numbers


@pytest.mark.parametrize("rate", [DELAYED, MARKED, SLOW])
def test_a_held_message_is_counted_when_it_arrives(client: Redis, store: Store, rate: Rate) -> None:
    hold_ms = 10 * MINUTE_MS
    store.append([limited(0, None), limited(1, rate)])
    appended = store.append([limited(n, rate) for n in (3, 4)], hold_ms=hold_ms)
    assert (appended.added, appended.held, appended.over_rate) == ((1, 1, 1) if rate is SLOW else (2, 2, 0))
    # When the lower number arrives, they join in order
    store.append([limited(2, None)], hold_ms=hold_ms)
    found = read(client).messages
    assert sorted(found) == [f"1:{n}" for n in range(4 if rate is SLOW else 5)]
    if rate is DELAYED:
        assert found["1:4"] == waiting("1:4", "a", due=10, has_turn=True)
    if rate is MARKED:
        assert found["1:4"] == waiting("1:4", "a", fence=CLOCK, is_marked=True)


# -- refused, corrupt, and stored forms


@pytest.mark.parametrize(
    "rate",
    [
        Rate("", 1, 1),
        Rate("a\n", 1, 1),
        Rate("a" * 257, 1, 1),
        Rate("a", 0, 1),
        Rate("a", 1, 0),
        Rate("a", 10**9 + 1, 1),
        Rate("a", 1, 10**9 + 1),
        Rate("a", 1.5, 1),  # type: ignore[arg-type]
        Rate("a", 1, 1, "answer"),  # type: ignore[arg-type]
    ],
)
def test_a_rate_that_cannot_be_counted_is_refused(store: Store, rate: Rate) -> None:
    with pytest.raises(PublishRefused, match="is not a rate: use a key of 1 to 256 bytes"):
        store.append([limited(1, rate)])


def test_a_corrupt_record_counts_as_none(client: Redis, store: Store) -> None:
    client.lpush(keys.RATE + "ann", "x")
    assert store.append([limited(1), limited(2), limited(3)]).over_rate == 1
    client.set(keys.RATE + "ann", "nonsense")
    assert store.append([limited(4), limited(5), limited(6)]).over_rate == 1


def test_bytes_of_a_rate(client: Redis, store: Store) -> None:
    """The form in which other releases count the same messages."""
    *_, rate, lanes = append_row(limited(1, Rate("7/user:9", 20, 60_000, "mark")))
    assert (rate, lanes) == ("20 60000 mark 7/user:9", "a")
    store.append([limited(1, Rate("7/user:9", 20, 60_000))])
    record = client.get("lanes:rate:7/user:9")
    assert isinstance(record, bytes)
    full_us, at_us, marked_us = map(int, record.split(b" "))
    assert (full_us - at_us, marked_us) == (3_000_000, 0)


def test_a_group_name_may_look_like_anything(store: Store) -> None:
    """Not even the name of a group changes the rate, nor its key the group."""
    odd = Group("1 2 drop x", 0, 0, MOST)
    appended = store.append([limited(n, SLOW._replace(key="9 9 delay y"), group=odd) for n in (1, 2, 3)])
    assert (appended.added, appended.over_rate) == (2, 1)
