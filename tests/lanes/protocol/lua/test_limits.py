"""Limits: at most this many messages of a key have a permit, the oldest first, and none waits while one is free."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy

import pytest
from redis import Redis

from celery_lanes import Group, PublishRefused, headers, limit
from celery_lanes.protocol import Limited, NewMessage, Paced, Rate, SetTimer, Store, keys
from celery_lanes.protocol.messages import append_row, joined_lanes
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    LEASE_MS,
    MINUTE_MS,
    buried,
    delayed,
    fence,
    gated,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B, C, D = "1:10", "1:11", "1:12", "1:13"
ONE, TWO = ("1 x",), ("2 x",)


def turn(store: Store, *settles: tuple[str, str], room: int = 9) -> list[str]:
    turned = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=room, settles=settles)
    return [message.id for message in turned.leased]


def append(store: Store, *messages: tuple[str, list[str]]) -> None:
    store.append([NewMessage(message_id, "q", f"body of {message_id}", lanes) for message_id, lanes in messages])


def permits(client: Redis) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    state = read(client)
    return state.permits, state.gates


def states(client: Redis) -> dict[str, str]:
    return {each.id: each.state for each in read(client).messages.values()}


def test_only_so_many_are_ready(client: Redis, store: Store) -> None:
    # When messages of a limit and of no lane are appended
    append(store, *((each, [Limited("x", 2)]) for each in (A, B, C, D)))
    # Then as many as may run are ready, in their order, and a worker gets no others
    assert read(client) == state_with(
        ready(A, limits=TWO),
        ready(B, limits=TWO),
        gated(C, limits=TWO),
        gated(D, limits=TWO),
        counts={"appended": 4, "gated": 2},
    )
    assert turn(store) == [A, B]
    assert turn(store) == []


@pytest.mark.parametrize("back", [[A, B, C, D], [D, C, B, A], [C, A, D, B]])
def test_messages_that_are_given_back_together_keep_their_order(store: Store, back: list[str]) -> None:
    append(store, *((each, [Limited("x", 4)]) for each in (A, B, C, D)))
    held = {each.id: each.fence for each in store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=4).leased}
    assert store.release([(each, held[each]) for each in back]) == []
    assert turn(store) == [A, B, C, D]


# Each ends the run of the first message, which is leased with the fence 1.
ENDS: dict[str, Callable[[Store], object]] = {
    "settle": lambda store: store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=0, settles=[(A, fence(1))]),
    "commit": lambda store: store.commit(A, fence(1), []),
    "a large commit": lambda store: store.commit(
        A, fence(1), [SetTimer("me", str(n), f"t{n}", "q", "", in_ms=MINUTE_MS) for n in range(100)]
    ),
    "bury": lambda store: store.bury(A, fence(1), {"type": "E"}),
    "retry": lambda store: store.retry(A, fence(1), delay_ms=MINUTE_MS, problem={"type": "E"}),
    "park": lambda store: store.park(A, fence(1), delay_ms=MINUTE_MS, kind="", reason="why"),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_oldest_gets_a_permit_that_becomes_free(client: Redis, store: Store, end: str) -> None:
    # Given a run, and messages of several queues that wait for its permit
    seed(client, state_with(leased(A, limits=ONE), gated(B, limits=ONE, queue="r"), gated(C, limits=ONE)))
    # When the run ends, or leaves its permit for a delay
    ENDS[end](store)
    # Then the oldest one is ready, and its queue is announced
    state = read(client)
    assert (state.permits, state.gates) == ({"x": [B]}, {"x": [C]})
    assert (state.ready, state.bells) == ({"r": [B]}, {"r"})


# Each takes the first message from its holder, and leaves it first in its lanes.
RETURNS: dict[str, Callable[[Store, Redis], object]] = {
    "release": lambda store, _: store.release([(A, fence(1))]),
    "death": lambda store, _: store.release([(A, fence(1))], died=True),
    "expiry": lambda store, client: client.zadd(keys.LEASES, {A: 1}) and None,
    "reconcile": lambda store, _: store.reconcile("me", []),
}


@pytest.mark.parametrize("back", RETURNS)
def test_a_message_that_is_taken_back_keeps_its_permit(client: Redis, store: Store, back: str) -> None:
    seed(client, state_with(leased(A, limits=ONE), gated(B, limits=ONE)))
    RETURNS[back](store, client)
    store.sweep(LEASE_MS)
    assert permits(client) == ({"x": [A]}, {"x": [B]})
    # And the late end of its old run frees nothing
    assert turn(store, (A, fence(1))) == [A]
    assert permits(client) == ({"x": [A]}, {"x": [B]})


def test_a_message_that_is_taken_back_keeps_its_permit_although_an_older_one_waits(client: Redis, store: Store) -> None:
    """The older one became the first of its lanes later."""
    seed(client, state_with(gated(A, limits=ONE), leased(B, limits=ONE)))
    store.release([(B, fence(1))])
    assert permits(client) == ({"x": [B]}, {"x": [A]})


def test_a_delayed_message_waits_for_a_permit_again(client: Redis, store: Store) -> None:
    """It is the oldest one."""
    seed(client, state_with(delayed(A, limits=ONE, minutes=-1), leased(B, limits=ONE), gated(C, limits=ONE)))
    store.sweep(LEASE_MS)
    assert permits(client) == ({"x": [B]}, {"x": [A, C]})
    assert turn(store, (B, fence(1))) == [A]


def test_only_the_first_of_a_lane_waits_for_a_permit(client: Redis, store: Store) -> None:
    """So a long lane does not keep the messages of other lanes waiting."""
    append(store, *((each, ["a", Limited("x", 2)]) for each in (A, B, C)), (D, ["b", Limited("x", 2)]))
    assert states(client) == {A: "ready", B: "waiting", C: "waiting", D: "ready"}
    assert permits(client) == ({"x": [A, D]}, {})
    # And the next one of the lane is before younger ones
    append(store, ("1:14", [Limited("x", 2)]))
    turn(store)
    [message] = [each for each in read(client).messages.values() if each.id == A]
    assert message.state == "leased"
    assert turn(store, (A, client.hget(keys.message(A), "fence").decode())) == [B]
    assert permits(client) == ({"x": [B, D]}, {"x": ["1:14"]})


def test_a_message_needs_a_permit_of_each_limit(client: Redis, store: Store) -> None:
    # Given limits that other messages use up
    seed(client, state_with(leased(A, limits=("1 y",)), leased(B, limits=("1 x",))))
    # When a message needs both, in whatever order they are named, and others need one
    append(store, (C, [Limited("y", 1), Limited("x", 1)]), (D, [Limited("y", 1)]), ("1:14", [Limited("x", 1)]))
    # Then it waits in one of them at most
    assert permits(client) == ({"x": [B], "y": [A]}, {"x": [C, "1:14"], "y": [D]})
    # And when both become free in one step, the oldest one gets them
    assert turn(store, (A, fence(1)), (B, fence(1))) == [C]
    assert permits(client) == ({"x": [C], "y": [C]}, {"x": ["1:14"], "y": [D]})


def test_no_two_messages_wait_for_each_other(client: Redis, store: Store) -> None:
    # Given a message that has a permit of one limit and waits for another
    seed(client, state_with(leased(A, limits=("1 y",)), leased(B, limits=("1 x",))))
    append(store, (C, [Limited("x", 1), Limited("y", 1)]), (D, [Limited("y", 1), Limited("x", 1)]))
    assert turn(store, (B, fence(1))) == []
    assert permits(client) == ({"x": [C], "y": [A]}, {"x": [D], "y": [C]})
    # Then all of them end
    assert turn(store, (A, fence(1))) == [C]
    assert turn(store, (C, client.hget(keys.message(C), "fence").decode())) == [D]


@pytest.mark.parametrize(("most", "expected"), [(1, []), (3, [])])
def test_a_message_keeps_the_limit_with_which_it_was_published(
    client: Redis, store: Store, most: int, expected: list[str]
) -> None:
    # Given two runs, and a message that waits for one of two permits
    seed(client, state_with(leased(A, limits=TWO), leased(B, limits=TWO), gated(C, limits=TWO)))
    # When a deploy has changed the limit, up or down
    append(store, (D, [Limited("x", most)]))
    # Then nothing overtakes: the new limit holds when its messages are the oldest
    assert turn(store) == expected
    assert turn(store, (A, fence(1))) == ([C] if most == 1 else [C, D])
    assert len(permits(client)[0]["x"]) == (2 if most == 1 else 3)


def test_pause_and_resume_of_a_limit(client: Redis, store: Store) -> None:
    # Given a run, a ready message and one that waits
    given = leased(A, limits=TWO), ready(B, "a", limits=TWO), gated(C, limits=TWO)
    seed(client, state_with(*given))
    # When the key is paused
    assert store.pause("lane", "x")
    # Then nothing starts, also if a permit becomes free or a run is released
    assert states(client) == {A: "leased", B: "gated", C: "gated"}
    store.release([(A, fence(1))])
    assert turn(store) == []
    assert permits(client) == ({}, {"x": [A, B, C]})
    # And after it was resumed, they start in their order
    assert store.resume("lane", "x")
    assert turn(store) == [A, B]


def test_a_paused_lane_takes_no_permit(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a", limits=ONE), gated(B, "b", limits=ONE), gated(C, "c", limits=ONE)))
    assert store.pause("lane", "a")
    assert store.pause("lane", "c")
    assert states(client) == {A: "waiting", B: "ready", C: "waiting"}
    assert permits(client) == ({"x": [B]}, {})
    store.resume("lane", "a")
    assert permits(client) == ({"x": [B]}, {"x": [A]})


def test_a_run_that_is_given_back_into_a_paused_lane_leaves_its_permit(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", limits=ONE), gated(B, "b", limits=ONE)))
    assert store.pause("lane", "a")
    store.release([(A, fence(1))])
    assert states(client) == {A: "waiting", B: "ready"}
    assert permits(client) == ({"x": [B]}, {})


def test_a_stopped_message_needs_no_permit(client: Redis, store: Store) -> None:
    """It is handed out only to be settled."""
    seed(client, state_with(leased(A, limits=ONE), gated(B, "b", limits=ONE), gated(C, limits=ONE)))
    store.append([NewMessage(D, "q", f"body of {D}", ["b"], stops=True)])
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert (message.id, message.is_stopped) == (B, True)
    assert permits(client) == ({"x": [A]}, {"x": [C]})
    # And its end frees none
    turn(store, (B, message.fence), room=0)
    assert permits(client) == ({"x": [A]}, {"x": [C]})


def test_a_message_that_is_stopped_in_the_same_step_was_not_gated(client: Redis, store: Store) -> None:
    """The count `gated` has the messages that wait for a permit at the end of a step, and did not before."""
    # Given no free permit
    seed(client, state_with(leased(B, limits=ONE)))
    # When a message is appended and is stopped by the next one in the same step
    first = NewMessage(A, "q", f"body of {A}", ["a", Limited("x", 1)])
    store.append([first, NewMessage(C, "q", f"body of {C}", ["a"], stops=True)])
    # Then it has not waited for a permit
    assert states(client) == {A: "ready", B: "leased", C: "waiting"}
    assert permits(client) == ({"x": [B]}, {})
    assert read(client).counts == {"appended": 2, "stopped": 1}


def test_replay_drop_and_purge(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, limits=ONE), gated(B, limits=ONE), gated(C, limits=ONE), buried(D, limits=ONE)))
    assert store.replay(D)
    assert permits(client) == ({"x": [A]}, {"x": [B, C, D]})
    # Purge empties the queue, including messages that get a permit meanwhile
    assert store.purge("q") == 4
    assert permits(client) == ({}, {})
    assert store.drop(D)


def test_a_rate_and_a_limit(client: Redis, store: Store) -> None:
    """A message that waits for its rate has no permit."""
    state = state_with(leased(B, limits=ONE))
    state.paces = {"a": 60}
    seed(client, state)
    append(store, (A, [Paced("a", "1/h"), Limited("x", 1)]), (C, [Limited("x", 1)]))
    assert states(client) == {A: "delayed", B: "leased", C: "gated"}
    client.delete(keys.PACES)
    client.zadd(keys.DELAYED, {A: 1})
    store.sweep(LEASE_MS)
    assert permits(client) == ({"x": [B]}, {"x": [A, C]})


def test_a_timer_a_successor_and_a_schedule_have_their_limit(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), leased(B, limits=ONE)))
    store.schedule(NewMessage("timer", "q", "t", [Limited("x", 1)]), "me", "x", in_ms=-1)
    store.append([NewMessage(A, "q", "successor", ["a", Limited("x", 1)], after_run=True)])
    message = NewMessage("s", "q", "s", [Limited("x", 1)])
    store.advance("me", "s", known=b"", record=b"r", until_ms=0, messages=[message])
    turn(store, (A, fence(1)), room=0)
    assert permits(client) == ({"x": [B]}, {"x": ["timer", "s", A]})


def test_lost_places_are_restored(client: Redis, store: Store) -> None:
    given = leased(A, limits=TWO), ready(B, limits=TWO), gated(C, limits=TWO), waiting(D, "a", limits=TWO)
    expected = state_with(*given[:3], leased("first", "a"), given[3], bells=["q"])
    seed(client, expected)
    client.delete(keys.LIMIT + "x")
    total = 0
    for _ in range(3):
        cursor, repairs = store.repair("0", LEASE_MS)
        total += repairs
        while cursor != "0":
            cursor, repairs = store.repair(cursor, LEASE_MS)
            total += repairs
    assert total == 3
    assert permits(client) == ({"x": [A, B]}, {"x": [C]})


@pytest.mark.parametrize("left", ["settled by an older release", "buried"])
def test_a_permit_of_a_message_that_does_not_run_is_freed(client: Redis, store: Store, left: str) -> None:
    """A release that does not know limits leaves the permit of a message that it has settled or buried."""
    seed(client, state_with(gated(B, limits=ONE), *([buried(A, limits=ONE)] if left == "buried" else [])))
    client.zadd(keys.LIMIT + "x", {A: -1})
    cursor, repairs = store.repair("0", LEASE_MS)
    while cursor != "0":
        cursor, more = store.repair(cursor, LEASE_MS)
        repairs += more
    assert repairs == 1
    assert permits(client) == ({"x": [B]}, {})


def test_who_waits_may_vanish(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, limits=ONE), gated(B, limits=ONE), gated(C, limits=ONE)))
    client.delete(keys.message(B))
    assert turn(store, (A, fence(1))) == [C]


def test_the_stored_form_of_limits() -> None:
    """These bytes are in Redis: a later release must read them."""
    assert joined_lanes([Limited("y:9", 3), "order:5", Limited("x", 1)]) == "order:5\n\x1c1 x\n\x1c3 y:9"
    assert joined_lanes([limit("x y", concurrency=20)]) == "\x1c20 x y"
    assert joined_lanes([Paced("a", "1/h"), limit("x", concurrency=1)]) == "a\n\x1c1 x\n\x1f3600000"
    stored = "a\n\x1c1 x\n\x1c3 y z\n\x1f3600000"
    assert (keys.lane_keys(stored), keys.limit_keys(stored)) == (["a"], ["x", "y z"])


def test_a_limit_is_a_text_that_can_be_copied() -> None:
    copied = deepcopy(Limited("x", 3))  # as Celery does with the options of a chain
    assert (copied, copied.concurrency) == ("x", 3)
    expected = '{"lane_keys": ["a", "x"], "lane_limits": {"x": 3}, "once": null}'
    assert json.dumps(headers(["a", copied])) == expected


@pytest.mark.parametrize("concurrency", [0, -1, 1001, 2.0, "3", True])
def test_what_is_not_a_number_of_messages_is_refused(concurrency: int) -> None:
    with pytest.raises(PublishRefused, match=r"is not a number of messages: use a whole number from 1 to 1,000"):
        limit("x", concurrency=concurrency)


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(PublishRefused, match=r"use rate='10/m' or concurrency=3"):
        limit("x")
    with pytest.raises(PublishRefused, match="cannot have a rate and a concurrency: with a rate it is a lane"):
        limit("x", rate="1/s", concurrency=3)
    with pytest.raises(PublishRefused, match="is a lane and a limit of one message"):
        headers(["x", limit("x", concurrency=3)])
    with pytest.raises(PublishRefused, match="'x' has the limits 2 and 3 in one message: use one of them"):
        headers([limit("x", concurrency=2), limit("x", concurrency=3)])
    group = Group("g", quiet_ms=1, max_wait_ms=1, most=2)
    for message in (
        NewMessage(A, "q", "", [Limited("x", 1)], group=group),
        NewMessage(A, "q", "", [Limited("x", 1)], rate=Rate("r", 1, 1)),
    ):
        with pytest.raises(PublishRefused, match="cannot have a lane with a rate or a limit"):
            append_row(message)


def test_messages_without_a_limit_need_no_further_command(client: Redis, store: Store) -> None:
    def commands() -> int:
        return sum(int(each["calls"]) for name, each in client.info("commandstats").items() if "eval" not in name)

    def cost() -> int:
        before = commands()
        append(store, ("m1", ["a"]), ("m2", ["a"]))
        [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=1).leased
        turn(store, (message.id, message.fence))
        turn(store, ("m2", client.hget(keys.message("m2"), "fence").decode()))
        return commands() - before

    # Given that the scripts are loaded
    _, without = cost(), cost()
    # When others have limits, the commands are as many as before
    store.append([NewMessage(each, "r", "", [Limited("x", 1)]) for each in (A, B)])
    assert cost() == without
