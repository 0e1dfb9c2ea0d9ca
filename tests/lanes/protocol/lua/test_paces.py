"""Rates: a message of a lane with a rate starts no sooner after the one before than the rate says."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy

import pytest
from redis import Redis

from celery_lanes import Group, PublishRefused, headers, limit
from celery_lanes.protocol import NewMessage, Paced, Rate, SetTimer, Store, keys
from celery_lanes.protocol.messages import append_row, joined_lanes
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    LEASE_MS,
    MINUTE_MS,
    MessageState,
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

A, B, C = "1:10", "1:11", "1:12"
HOURLY = Paced("a", "1/h")
RATES = ("1/h",)


def paced(message_id: str, **more: int | str | None) -> MessageState:
    """It is delayed for the rate of its lane."""
    fields = {"failed": 0, "errors": (), "fence": None, "minutes": 60, "rates": RATES}
    return delayed(message_id, "a", **(fields | more))


def with_pace(state: State, **minutes: int) -> State:
    state.paces = minutes
    return state


def state_of(client: Redis, message_id: str) -> MessageState:
    return read(client).messages[message_id]


def end_pace(client: Redis, lane: str = "a") -> None:
    """The time has come."""
    client.zincrby(keys.PACES, -61 * MINUTE_MS, lane)
    for message_id in client.zrange(keys.DELAYED, 0, -1):
        client.zincrby(keys.DELAYED, -61 * MINUTE_MS, message_id)


def turn(store: Store, *settles: tuple[str, str], room: int = 9) -> list[str]:
    turned = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=room, settles=settles)
    return [message.id for message in turned.leased]


# Each ends the run of the first message, which is leased with the fence 1.
ENDS: dict[str, Callable[[Store], object]] = {
    "settle": lambda store: turn(store, (A, fence(1))),
    "commit": lambda store: store.commit(A, fence(1), []),
    "a large commit": lambda store: store.commit(
        A, fence(1), [SetTimer("me", str(n), f"t{n}", "q", "", in_ms=MINUTE_MS) for n in range(100)]
    ),
    "bury": lambda store: store.bury(A, fence(1), {"type": "E"}),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_next_message_is_delayed_until_the_rate_allows_it(client: Redis, store: Store, end: str) -> None:
    # Given a run of a lane with a rate, and a message behind it
    seed(client, state_with(leased(A, "a", rates=RATES), waiting(B, "a", rates=RATES)))
    # When the run ends, at once
    ENDS[end](store)
    # Then the next one takes no slot
    assert turn(store) == []
    assert (state_of(client, B), read(client).paces) == (paced(B), {"a": 60})
    # And is handed out when its time has come, without an attempt
    end_pace(client)
    assert store.sweep(LEASE_MS).due == 1
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert (message.id, message.is_first) == (B, True)


# Each takes the first message from its holder, and leaves it first in its lanes.
RETURNS: dict[str, Callable[[Store, Redis], object]] = {
    "release": lambda store, _: store.release([(A, fence(1))]),
    "death": lambda store, _: store.release([(A, fence(1))], died=True),
    "retry": lambda store, _: store.retry(A, fence(1), delay_ms=-1, problem={"type": "E"}),
    "park": lambda store, _: store.park(A, fence(1), delay_ms=-1, kind="", reason="why"),
    "expiry": lambda store, client: client.zadd(keys.LEASES, {A: 1}),
}


@pytest.mark.parametrize("back", RETURNS)
def test_a_repeated_run_counts_too(client: Redis, store: Store, back: str) -> None:
    seed(client, state_with(leased(A, "a", rates=RATES), waiting(B, "a", rates=RATES)))
    RETURNS[back](store, client)
    store.sweep(LEASE_MS)
    assert turn(store) == []
    found = read(client)
    assert (found.messages[A].state, found.messages[A].minutes, found.paces) == ("delayed", 60, {"a": 60})
    assert found.messages[B].state == "waiting"
    end_pace(client)
    store.sweep(LEASE_MS)
    assert turn(store) == [A]


def test_what_never_ran_does_not_count(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", rates=RATES), leased(B, "b", rates=RATES)))
    store.release([(A, fence(1))], started=False)
    assert store.reconcile("me", [A]) == 1
    assert read(client).paces == {}
    assert sorted(turn(store)) == [A, B]


def test_a_run_longer_than_the_interval_leaves_nothing_to_wait_for(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", rates=RATES), waiting(B, "a", rates=RATES)))
    seconds, micros = client.time()
    earlier = str(int(seconds) * 10**6 + int(micros) - 3_600_000_000 - 1000)
    client.hset(keys.message(A), "fence", earlier)
    assert turn(store, (A, earlier)) == [B]
    assert read(client).paces == {}


@pytest.mark.parametrize("lanes", [("a",), ("b", "a"), ("a", "a")])
def test_a_message_that_is_appended_waits_for_the_rate_of_an_empty_lane(
    client: Redis, store: Store, lanes: tuple[str, ...]
) -> None:
    seed(client, with_pace(state_with(), a=60))
    appended = store.append([NewMessage(A, "q", f"body of {A}", [HOURLY if key == "a" else key for key in lanes])])
    assert appended.added == 1
    assert turn(store) == []
    rates = tuple("1/h" if key == "a" else "" for key in dict.fromkeys(lanes))
    found = state_of(client, A)
    assert (found.state, found.minutes, found.rates) == ("delayed", 60, rates)
    assert not read(client).bells


def test_a_message_without_a_rate_neither_waits_nor_counts(client: Redis, store: Store) -> None:
    seed(client, with_pace(state_with(leased(A, "a"), waiting(B, "a")), a=60))
    assert turn(store, (A, fence(1))) == [B]
    assert read(client).paces == {"a": 60}


def test_all_rates_of_a_message_hold(client: Redis, store: Store) -> None:
    # Given a message with two rates, of which the second is used up for longer
    lanes = [Paced("a", "2/h"), Paced("b", "1/h"), "c"]
    seed(client, with_pace(state_with(), a=10, b=20))
    store.append([NewMessage(A, "q", f"body of {A}", lanes)])
    assert state_of(client, A).minutes == 20
    # When it has run, each lane has its own pace
    client.delete(keys.PACES)
    client.zadd(keys.DELAYED, {A: 1})
    store.sweep(LEASE_MS)
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    turn(store, (A, message.fence))
    assert read(client).paces == {"a": 30, "b": 60}


def test_a_message_keeps_the_rate_with_which_it_was_published(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", rates=("2/h",)), waiting(B, "a", rates=("1/h",)), waiting(C, "a")))
    turn(store, (A, fence(1)))
    assert state_of(client, B).minutes == 30
    end_pace(client)
    store.sweep(LEASE_MS)
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    turn(store, (B, message.fence), room=0)
    assert read(client).paces == {"a": 60}


def test_a_stopped_message_does_not_wait_for_a_rate(client: Redis, store: Store) -> None:
    """It is handed out only to be settled."""
    seed(client, with_pace(state_with(paced(A)), a=60))
    store.append([NewMessage(B, "q", f"body of {B}", [HOURLY], stops=True)])
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert (message.id, message.is_stopped) == (A, True)


def test_a_replayed_message_waits_for_the_rate(client: Redis, store: Store) -> None:
    seed(client, with_pace(state_with(buried(A, "a", rates=RATES)), a=60))
    assert store.replay(A)
    assert (state_of(client, A).state, state_of(client, A).minutes) == ("delayed", 60)


def test_a_paused_lane_waits_for_its_rate_after_it_is_resumed(client: Redis, store: Store) -> None:
    seed(client, with_pace(state_with(ready(A, "a", rates=RATES)), a=60))
    store.pause("lane", "a")
    assert state_of(client, A).state == "waiting"
    store.resume("lane", "a")
    assert state_of(client, A).minutes == 60


def test_a_timer_a_successor_and_a_held_message_have_their_rate(client: Redis, store: Store) -> None:
    # Given a run, and a pace of its lane
    seed(client, with_pace(state_with(leased(A, "z")), a=60))
    # When messages reach the lane in these ways
    store.schedule(NewMessage("timer", "q", "t", [HOURLY]), "me", "x", in_ms=-1)
    store.append([NewMessage(A, "q", "successor", [Paced("b", "2/h")], after_run=True)])
    store.append([NewMessage(B, "q", f"body of {B}", ["h", Paced("c", "1/h")], ("1", 11))], hold_ms=LEASE_MS)
    turn(store, (A, fence(1)), room=0)
    client.zadd(keys.HELD, {B: 1})
    store.sweep(LEASE_MS)
    # Then they have it
    found = {each.id: (each.state, each.rates) for each in read(client).messages.values()}
    assert found == {"timer": ("delayed", RATES), A: ("ready", ("2/h",)), B: ("ready", ("", "1/h"))}


def test_a_clock_that_is_set_back_does_not_keep_a_lane_waiting(client: Redis, store: Store) -> None:
    """A fence from the future is a start now; a pace from the future moves with the clock."""
    seed(client, with_pace(state_with(leased(A, "a", rates=RATES), waiting(B, "a", rates=RATES), swept=-600), b=605))
    store.sweep(LEASE_MS)
    turn(store, (A, fence(1)))
    assert read(client).paces == {"a": 60, "b": 5}


def test_a_fetch_and_a_sweep_say_when_the_next_message_may_start(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", rates=RATES), waiting(B, "a", rates=RATES)))
    turned = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9, settles=[(A, fence(1))])
    assert 3500 < (turned.due_s or 0) <= 3601
    assert 3500 < (store.sweep(LEASE_MS).next_ms or 0) / 1000 <= 3601


def test_a_pace_is_forgotten_when_it_is_over(client: Redis, store: Store) -> None:
    seed(client, with_pace(state_with(), a=-1, b=1))
    store.sweep(LEASE_MS)
    assert read(client).paces == {"b": 1}


def test_the_stored_form_of_lanes_with_rates() -> None:
    """These bytes are in Redis: a later release must read them."""
    assert joined_lanes([Paced("customer:9", "10/m"), "order:5"]) == "customer:9\norder:5\n\x1f6000 0"
    assert joined_lanes(["a", "b", Paced("a", "1/h")]) == "a\nb\n\x1f3600000 0"
    assert joined_lanes([limit("a", rate="7/s")]) == "a\n\x1f143"
    assert joined_lanes(["a", "a"]) == "a\na"
    assert keys.lane_keys("customer:9\norder:5\n\x1f6000 0") == ["customer:9", "order:5"]


def test_a_lane_with_a_rate_is_a_text_that_can_be_copied() -> None:
    copied = deepcopy(HOURLY)  # as Celery does with the options of a chain
    assert (copied, copied.rate, copied.interval_ms) == ("a", "1/h", 60 * MINUTE_MS)
    assert json.dumps(headers([HOURLY])) == '{"lane_keys": ["a"], "lane_rates": {"a": "1/h"}, "once": null}'


@pytest.mark.parametrize("rate", ["", "10", "0/m", "1/d", "10/M", " 1/s", "-1/s", "1001/s", "0.5/m", 5, None])
def test_what_is_not_a_rate_is_refused(rate: str) -> None:
    with pytest.raises(PublishRefused, match="is not a rate: use rate='10/m'"):
        limit("a", rate=rate)


def test_a_message_of_a_group_cannot_have_a_lane_with_a_rate() -> None:
    group = Group("g", quiet_ms=1, max_wait_ms=1, most=2)
    with pytest.raises(PublishRefused, match="a message of a group, or with a Rate, cannot have a lane with a rate"):
        append_row(NewMessage(A, "q", "", [HOURLY], group=group))
    with pytest.raises(PublishRefused, match="a message of a group, or with a Rate, cannot"):
        append_row(NewMessage(A, "q", "", [HOURLY], rate=Rate("r", 1, 1)))
