"""Timers: messages that join the end of their lanes when they are due, once, in the order of their times."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from celery_lanes.leases.background import SWEEP_EVERY_S
from celery_lanes.protocol import CancelTimer, MoveTimer, NewMessage, Outcome, SetTimer, Store, keys
from celery_lanes.protocol.verbs import SWEEP_LIMIT
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    LEASE_MS,
    MINUTE_MS,
    TimerState,
    collecting,
    fence,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B, C, D, E = (f"1:{number}" for number in range(10, 15))

#: How many timers one sweep fires.
FIRED = SWEEP_LIMIT
#: A timer that is due sooner wakes a worker when it is set.
SOON_S = 5
#: About the size of an owner's string, above which its timers are in a hash.
FULL = 2048
#: A time after every test.
LATER_MS = 8 * 10**12


def new(message_id: str, *lanes: str, **more: Any) -> NewMessage:
    return NewMessage(message_id, "q", "timer", lanes, **more)


def fired(message_id: str, *lanes: str, state: Any = ready, **more: Any) -> Any:
    """The message of a timer that has fired."""
    return state(message_id, *lanes, **({"body": "timer"} | more))


def counted(*, scheduled: int = 0, fired: int = 0, **more: int) -> dict[str, int]:
    return {"scheduled": scheduled, "fired": fired, "appended": fired, **more}


# Setting a timer


def test_a_timer_is_in_no_lane_until_it_is_due(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a")))
    assert store.schedule(new(B, "a", "b"), "me", "wake", in_ms=10 * MINUTE_MS)
    timer = TimerState("me", "wake", B, 10, ("a", "b"))
    assert read(client) == state_with(ready(A, "a"), timers=[timer], counts=counted(scheduled=1))
    assert store.turn(["q"], holder="w", lease_ms=LEASE_MS, room=1).due_s == pytest.approx(600, abs=60)
    assert store.sweep(LEASE_MS).next_ms == pytest.approx(600_000, abs=60_000)


def test_only_a_timer_that_is_due_before_the_next_sweep_wakes_a_worker(client: Redis, store: Store) -> None:
    # Given a timer of another queue, which no worker may read
    store.schedule(new(A)._replace(queue="unread"), "me", "first", in_ms=1_000)
    store.schedule(new(B), "me", "later", in_ms=MINUTE_MS)
    assert read(client).bells == {"unread"}
    assert SOON_S > SWEEP_EVERY_S
    store.schedule(new(C), "me", "sooner", in_ms=round(SWEEP_EVERY_S * 1000))
    assert read(client).bells == {"unread", "q"}


def test_a_new_timer_replaces_one_of_its_name(client: Redis, store: Store) -> None:
    others = [TimerState("me", "x", A), TimerState("you", "wake", C)]
    seed(client, state_with(timers=[others[0], TimerState("me", "wake", B), others[1]]))
    assert store.schedule(new(D, "d"), "me", "wake", in_ms=30 * MINUTE_MS)
    given = [*others, TimerState("me", "wake", D, 30, ("d",))]
    assert read(client) == state_with(timers=given, counts=counted(scheduled=1))
    assert [(timer.name, timer.id) for timer in store.timers("me")] == [("x", A), ("wake", D)]


def test_a_timer_that_does_not_replace_is_refused(client: Redis, store: Store) -> None:
    given = state_with(timers=[TimerState("me", "wake", A)])
    seed(client, given)
    assert not store.schedule(new(B, once=("s", 1)), "me", "wake", in_ms=1, replaces=False)
    assert read(client) == given


def test_a_message_that_was_seen_sets_no_timer(client: Redis, store: Store) -> None:
    seed(client, state_with(waiting(A), bells=[], seen={"s:0": {3}}))
    assert not store.schedule(new(B, once=("s", 3)), "me", "x", in_ms=1)
    assert not store.schedule(new(A), "me", "x", in_ms=1)
    assert store.schedule(new(B, once=("s", 4)), "me", "x", in_ms=MINUTE_MS)
    assert not store.schedule(new(C, once=("s", 4)), "me", "y", in_ms=1)
    assert read(client).seen == {"s:0": {3, 4}}
    assert list(read(client).timers) == ["me\nx"]


@pytest.mark.parametrize("at_ms", [10**400, 2**53 + 2, 2**53])
def test_a_time_after_the_last_one(store: Store, at_ms: int) -> None:
    store.schedule(new("1:"), "me", "x", at_ms=at_ms)
    [timer] = store.timers("me")
    assert (timer.at_ms, timer.id.split(":")[1]) == (2**53, str(2**53))
    assert store.sweep(LEASE_MS).next_ms == pytest.approx(2**53, rel=0.01)


@pytest.mark.parametrize("at_ms", [-5, 0, 1])
def test_a_time_in_the_past_fires_at_once(client: Redis, store: Store, at_ms: int) -> None:
    # Given a message, and a timer that is due and that no worker has fired
    seed(client, state_with(waiting(A, "a"), timers=[TimerState("you", "x", B, -1, ("a",))]))
    # When a timer for the past is set
    assert store.schedule(new(C, "a"), "me", "x", at_ms=at_ms)
    assert store.append([new(D, "a")]).added == 1
    # Then its message is before those that are appended later
    assert {*read(client).lanes["a"][:3]} == {A, B, C}
    assert read(client).lanes["a"][3] == D
    assert read(client).timers == {}


def make_due(client: Redis, *timers: str) -> None:
    client.zadd(keys.TIMERS, dict.fromkeys(timers, 1), xx=True)


@pytest.mark.parametrize(("owner", "name"), [("a\nb", "x"), ("a", "x\n"), ("a", "\x00")])
def test_an_ambiguous_name_is_refused(store: Store, owner: str, name: str) -> None:
    with pytest.raises(ValueError, match="control characters"):
        store.schedule(new(A), owner, name)


def test_an_id_is_completed_by_the_time_and_a_unique_number(client: Redis, store: Store) -> None:
    for name in "xyz":
        store.schedule(new("1:timer:"), "me", name, at_ms=LATER_MS)
    found = [timer.id.split(":") for timer in store.timers("me")]
    assert {tuple(parts[:3]) for parts in found} == {("1", "timer", str(LATER_MS))}
    assert len({parts[3] for parts in found}) == 3
    ids = {timer.id for timer in store.timers("me")}
    make_due(client, "me\nx", "me\ny", "me\nz")
    store.sweep(LEASE_MS)
    assert {*read(client).messages} == ids


def test_a_timer_is_stored_shortened_and_fires_unchanged(client: Redis, store: Store) -> None:
    embed = b'{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}'
    body = b'{"headers":{"task":"t","argsrepr":"(1)"}}\n[[1],%s]' % embed
    store.schedule(NewMessage(A, "q", body, ["me"]), "me", "x", at_ms=LATER_MS)
    assert client.get(keys.TIMER + "me") == b"1:x4:1:101:q1:\x0110:\x0ct\x0d(1)\x0e1]\x0f"
    [timer] = store.timers("me")
    assert (timer.lanes, timer.stored) == (["me"], body)
    make_due(client, "me\nx")
    store.sweep(LEASE_MS)
    [leased] = store.turn(["q"], holder="w", lease_ms=LEASE_MS, room=1).leased
    assert (leased.stored, read(client).messages[leased.id].lanes) == (body, ("me",))


@pytest.mark.parametrize(
    ("owner", "name", "text"),
    [
        ("7/order:5", "5", '{"headers":{"task":"t"}}\n[[5, "7/order:5"]]'),
        ("a", "a", "aaa"),
        ("", "x", "plain"),
        ("7/order:5", "data", '{"timer":{"name":"data","data":{"data":5},"chat":{"id":5,"type":"private"}}}'),
        ("7/order:5", "x", "\x01\x02 \x0b 7/chat:5"),
        ("7/order:5", "x", "\x1f\x00\x1f"),
        ("7/order:5", "x", "\n\t\n"),
    ],
)
def test_any_stored_form_is_read_as_it_was(client: Redis, store: Store, owner: str, name: str, text: str) -> None:
    store.schedule(NewMessage("1:timer:", "5", text, ["7/order:5", "7/user:5"]), owner, name, at_ms=LATER_MS)
    [timer] = store.timers(owner)
    assert (timer.name, timer.queue, timer.lanes) == (name, "5", ["7/order:5", "7/user:5"])
    assert (timer.id.rpartition(":")[0], timer.stored) == (f"1:timer:{LATER_MS}", text.encode())
    make_due(client, f"{owner}\n{name}")
    store.sweep(LEASE_MS)
    [leased] = store.turn(["5"], holder="w", lease_ms=LEASE_MS, room=1).leased
    assert (leased.id, leased.stored) == (timer.id, timer.stored)


def test_changing_one_of_many_timers_of_an_owner_rewrites_few(client: Redis, store: Store) -> None:
    timers = [TimerState("me", f"{n}", f"1:{n}", 10, ("a",), body="x" * 100) for n in range(100)]
    for timer in timers:
        store.schedule(NewMessage(timer.id, "q", timer.body, timer.lanes), "me", timer.name, in_ms=10 * MINUTE_MS)
    assert client.strlen(keys.TIMER + "me") <= FULL
    assert client.hlen(keys.OVERFLOW + "me") > 50
    assert read(client) == state_with(timers=timers, counts=counted(scheduled=100))
    # One is moved, two are cancelled, and two fire: one of the string and one of the hash each
    moved = TimerState("me", "99", D, 20)
    store.schedule(new(D), "me", "99", in_ms=20 * MINUTE_MS)
    assert [store.cancel("me", name) for name in ("1", "98", "98")] == [True, True, False]
    client.zadd(keys.TIMERS, {"me\n2": 1, "me\n97": 2})
    store.sweep(LEASE_MS)
    found = read(client)
    assert [*found.messages] == ["1:2", "1:97"]
    left = [timer for timer in timers if timer.name not in ("1", "2", "97", "98", "99")]
    assert found.timer_fields["me"] == {timer.name: timer.fields for timer in [*left, moved]}
    # And the remaining timers agree with their times, also after these were lost
    assert repaired(store) == 0
    client.delete(keys.TIMERS)
    assert repaired(store) == len(left) + 1


def test_large_data_is_in_the_hash_and_its_owner_leaves_nothing(client: Redis, store: Store) -> None:
    store.schedule(NewMessage(A, "q", "x" * FULL, []), "me", "x", in_ms=-1)
    assert not client.exists(keys.TIMER + "me")
    store.sweep(LEASE_MS)
    assert [*read(client).messages] == [A]
    assert not client.exists(keys.TIMERS, keys.OVERFLOW + "me")


# Cancelling it


def test_a_cancelled_timer_does_not_fire(client: Redis, store: Store) -> None:
    seed(client, state_with(timers=[TimerState("me", "x", A, -1), TimerState("me", "y", B)]))
    assert store.cancel("me", "x")
    assert not store.cancel("me", "x")
    assert not store.cancel("you", "y")
    store.sweep(LEASE_MS)
    assert read(client) == state_with(timers=[TimerState("me", "y", B)], counts={"cancelled": 1}, swept=0)


def test_a_moved_timer_is_cancelled_completely(client: Redis, store: Store) -> None:
    store.schedule(new(A), "me", "x", in_ms=MINUTE_MS)
    store.schedule(new(B), "me", "x", in_ms=5 * MINUTE_MS)
    assert store.cancel("me", "x")
    assert read(client).timer_fields == {}
    assert not client.exists(keys.TIMERS, keys.TIMER + "me")


# In a commit


def test_a_commit_sets_moves_and_cancels_timers(client: Redis, store: Store) -> None:
    given = [TimerState("me", "x", B), TimerState("me", "y", C), TimerState("me", "z", D)]
    seed(client, state_with(leased(A, "a", "b"), timers=given))
    writes = [
        SetTimer("me", "x", "1:20", "", "timer", in_ms=20 * MINUTE_MS),
        CancelTimer("me", "y"),
        CancelTimer("me", "none"),
        SetTimer("me", "new", "1:21", "r", "timer", in_ms=MINUTE_MS, lanes=["c"]),
    ]
    assert store.commit(A, fence(1), writes) is Outcome.DONE
    left = [
        TimerState("me", "z", D),
        TimerState("me", "x", "1:20", 20, ("a", "b")),
        TimerState("me", "new", "1:21", 1, ("c",), queue="r"),
    ]
    counts = {"settled": 1, "cancelled": 1, "scheduled": 2}
    assert read(client) == state_with(timers=left, counts=counts)


def test_a_commit_gives_a_timer_another_owner(client: Redis, store: Store) -> None:
    given = [
        TimerState("me", "x", B, 3),
        TimerState("me", "y", C, 4),
        TimerState("me", "z", D),
        TimerState("you", "z", E),
    ]
    seed(client, state_with(leased(A, "a"), timers=given))
    writes = [
        MoveTimer("me", "x", B, "you", "r", "moved", ["b"]),
        MoveTimer("me", "y", "1:99", "you", "r", "moved"),  # it is another one by now
        MoveTimer("me", "z", D, "you", "r", "moved"),  # the new owner has one of this name
        MoveTimer("me", "none", D, "you", "r", "moved"),
    ]
    assert store.commit(A, fence(1), writes) is Outcome.DONE
    left = [given[1], given[3], TimerState("you", "x", B, 3, ("b",), "r", "moved")]
    assert read(client) == state_with(timers=left, counts={"settled": 1, "cancelled": 1})
    # And it fires as what it is now
    client.zadd(keys.TIMERS, {"you\nx": 1})
    store.sweep(LEASE_MS)
    assert read(client).messages[B].lanes == ("b",)


def test_an_old_fence_sets_and_cancels_no_timer(client: Redis, store: Store) -> None:
    given = [leased(A, "a", fence=5)]
    seed(client, state_with(*given, timers=[TimerState("me", "x", B)]))
    writes = [SetTimer("me", "x", C, "", "timer"), SetTimer("me", "y", D, "", "timer"), CancelTimer("me", "x")]
    assert store.commit(A, fence(4), writes) is Outcome.LOST
    assert read(client) == state_with(*given, timers=[TimerState("me", "x", B)], counts={"refused": 1})


# Firing


def test_due_timers_join_the_end_of_their_lanes_in_the_order_of_their_times(client: Redis, store: Store) -> None:
    given = [leased(A, "a"), waiting("1:9", "a")]
    timers = [
        TimerState("me", "third", B, -1, ("a",)),
        TimerState("you", "first", C, -3, ("a", "b")),
        TimerState("me", "second", D, -2, ("b",)),
        TimerState("me", "later", "1:99", 10, ("a",)),
    ]
    seed(client, state_with(*given, timers=timers))
    store.sweep(LEASE_MS)
    # Then they are behind the messages that came before, and the second one waits for the first
    after = [*given, *(fired(id_, *lanes, state=waiting) for id_, lanes in [(C, "ab"), (D, "b"), (B, "a")])]
    assert read(client) == state_with(*after, timers=timers[3:], counts=counted(fired=3), swept=0)
    # And nothing fires twice
    store.sweep(LEASE_MS)
    assert read(client) == state_with(*after, timers=timers[3:], counts=counted(fired=3), swept=0)


def test_a_sweep_fires_a_limited_number(client: Redis, store: Store) -> None:
    seed(client, state_with(timers=[TimerState("me", f"{n}", f"1:{n}", n - 1_000) for n in range(FIRED + 5)]))
    assert store.sweep(LEASE_MS).next_ms == 0
    assert len(read(client).timers) == 5
    assert read(client).ready["q"] == [f"1:{n}" for n in range(FIRED)]
    assert store.sweep(LEASE_MS).next_ms is None
    assert not client.exists(keys.TIMERS, keys.TIMER + "me")


def test_a_timer_of_a_paused_lane_waits_in_it(client: Redis, store: Store) -> None:
    seed(client, state_with(timers=[TimerState("me", "x", A, -1, ("a",))], paused=["lane:a"]))
    store.sweep(LEASE_MS)
    state = state_with(fired(A, "a", state=waiting), paused=["lane:a"], counts=counted(fired=1), swept=0)
    assert read(client) == state
    assert store.resume("lane", "a")
    assert store.turn(["q"], holder="w", lease_ms=LEASE_MS, room=1).leased[0].stored == b"timer"


def test_a_group_is_closed_before_a_timer_joins_its_lane(client: Redis, store: Store) -> None:
    seed(client, state_with(collecting(A, "a"), timers=[TimerState("me", "x", B, -1, ("a",))]))
    store.sweep(LEASE_MS)
    found = read(client)
    assert (found.messages[A].state, found.messages[A].due, found.messages[B].state) == ("ready", None, "waiting")
    # And a message of the group that arrives later stands behind the timer
    assert found.lanes == {"a": [A, B]}


def test_a_timer_whose_message_exists_is_dropped(client: Redis, store: Store) -> None:
    given = [ready(A, "a")]
    seed(client, state_with(*given, timers=[TimerState("me", "x", A, -1, ("b",))]))
    store.sweep(LEASE_MS)
    assert read(client) == state_with(*given, swept=0)


def test_a_lane_that_is_named_twice_is_joined_once(client: Redis, store: Store) -> None:
    seed(client, state_with(timers=[TimerState("me", "x", A, -1, ("a", "b", "a"))]))
    store.sweep(LEASE_MS)
    assert read(client) == state_with(fired(A, "a", "b"), counts=counted(fired=1), swept=0)


def test_purging_a_queue_keeps_its_timers(client: Redis, store: Store) -> None:
    timer = TimerState("me", "x", B, 10, ("a",))
    seed(client, state_with(ready(A, "a"), timers=[timer]))
    assert store.purge("q") == 1
    assert read(client).timers == {timer.key: 10}


def test_a_full_redis_refuses_new_timers_and_fires_and_cancels_old_ones(client: Redis, store: Store) -> None:
    for name in "xy":
        store.schedule(new(f"1:{name}"), "me", name, in_ms=-1)
    for name in "xy":
        store.schedule(new(f"2:{name}"), "me", name, at_ms=LATER_MS)
    make_due(client, "me\nx", "me\ny")
    store.cancel("me", "none")
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(ResponseError, match="used memory"):
            store.schedule(new("3:z", once=("s", 1)), "me", "z")
        assert store.cancel("me", "x")
        store.sweep(LEASE_MS)
    finally:
        client.config_set("maxmemory", 0)
    assert {*read(client).messages} == {"1:x", "1:y", "2:y"}
    assert read(client).seen == {}


# Repair


def test_a_lost_time_is_taken_from_the_id_or_is_now(client: Redis, store: Store) -> None:
    store.schedule(new("1:timer:"), "me", "x", in_ms=10 * MINUTE_MS)
    store.schedule(new(A), "me", "y", in_ms=10 * MINUTE_MS)
    client.delete(keys.TIMERS)
    assert repaired(store) == 2
    assert read(client).timers == {"me\nx": 10, "me\ny": 0}


def test_a_timer_is_stored_once_although_its_time_was_lost(client: Redis, store: Store) -> None:
    seed(client, state_with(timers=[TimerState("me", "x", A), TimerState("me", "y", B)]))
    client.zrem(keys.TIMERS, "me\nx")
    store.schedule(new(C), "me", "x", in_ms=-1)
    store.sweep(LEASE_MS)
    assert [*read(client).messages] == [C]
    assert read(client).timer_fields.keys() == {"me"}
    assert list(read(client).timer_fields["me"]) == ["y"]


def test_a_time_without_a_timer_is_removed(client: Redis, store: Store) -> None:
    seed(client, state_with(timers=[TimerState("me", "x", A, -1), TimerState("you", "x", B)]))
    client.delete(keys.TIMER + "me")
    store.sweep(LEASE_MS)  # without effect on the others
    client.zadd(keys.TIMERS, {"gone\nx": 1})
    assert repaired(store) == 1
    assert read(client) == state_with(timers=[TimerState("you", "x", B)], counts={"repaired": 1}, swept=0)


@pytest.mark.parametrize("lost", [keys.TIMER, keys.OVERFLOW])
def test_a_time_is_removed_although_its_owner_has_another_timer(client: Redis, store: Store, lost: str) -> None:
    store.schedule(NewMessage(A, "q", "x" * FULL, []), "me", "large", in_ms=10 * MINUTE_MS)
    store.schedule(new(B), "me", "small", in_ms=10 * MINUTE_MS)
    client.delete(lost + "me")
    assert repaired(store) == 1
    assert [*read(client).timers] == ["me\nlarge" if lost == keys.TIMER else "me\nsmall"]


def repaired(store: Store) -> int:
    cursor, total = store.repair("0", LEASE_MS)
    while cursor != "0":
        cursor, repairs = store.repair(cursor, LEASE_MS)
        total += repairs
    return total


def test_an_append_joins_behind_the_timers_that_are_due(client: Redis, store: Store) -> None:
    # Given 25 timers of a lane that are due, and no worker that could have fired them
    for number in range(25):
        message = NewMessage(f"t{number}", "q", b"x", ["a"])
        store.schedule(message, "a", f"n{number}", at_ms=2**50)
        client.zadd(keys.TIMERS, {f"a\nn{number}": number})
    # When two messages are appended one after the other
    appended = [store.append([NewMessage(name, "q", b"x", ["a"])]) for name in ("m1", "m2")]
    # Then the first 20 are before the first one, and the others before the second
    names = [name.decode() for name in client.zrange(keys.lane("a"), 0, -1)]
    assert names == [*(f"t{n}" for n in range(20)), "m1", *(f"t{n}" for n in range(20, 25)), "m2"]
    assert [(each.added, each.pending) for each in appended] == [(1, 21), (1, 27)]
    assert (store.look().appended, client.hget(keys.COUNTS, "fired")) == (27, b"25")


def test_an_append_that_a_full_redis_refuses_fires_nothing(client: Redis, store: Store) -> None:
    store.schedule(NewMessage("t", "q", b"x", ["a"]), "a", "n", at_ms=2**50)
    client.zadd(keys.TIMERS, {"a\nn": 1})
    client.config_set("maxmemory", 1)
    try:
        with pytest.raises(ResponseError):
            store.append([NewMessage("m", "q", b"x", ["a"])])
        assert (client.zcard(keys.TIMERS), client.exists(keys.lane("a"))) == (1, 0)
    finally:
        client.config_set("maxmemory", 0)


def test_many_timers_of_an_owner_are_read_in_several_steps(client: Redis, store: Store) -> None:
    # Given two owners, one with more timers than one step returns
    for owner, count in (("many", 400), ("few", 3)):
        for number in range(count):
            message = NewMessage(f"{owner}:{number}", "q", b"x" * 100, ["a"])
            store.schedule(message, owner, f"n{number}", at_ms=2**50 + number)
    client.config_resetstat()
    # When they are read, then each is returned once, in order
    found = store.timers("many", "none", "few")
    assert [timer.name for timer in found if timer.owner == "many"] == [f"n{number}" for number in range(400)]
    assert [timer.name for timer in found if timer.owner == "few"] == ["n0", "n1", "n2"]
    assert client.info("commandstats")["cmdstat_evalsha"]["calls"] >= 4
