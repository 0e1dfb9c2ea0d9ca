"""turn: settles finished messages and hands out ready ones, in one step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from celery_lanes.leases.pending_acks import RUN, WAIT, Times
from celery_lanes.protocol import MAX_DEATHS, Fetched, Leased, NewMessage, Store, keys
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    CLOCK,
    LEASE_MINUTES,
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

A, B, C, D = "1:10", "1:11", "1:12", "1:13"
NOTHING = Fetched(lost=[], more=False, suspects=False, leased=[])


def turn(store: Store, *queues: str, room: int = 10, holder: str = "me", **more: Any) -> Fetched:
    return store.turn(queues or ["q"], holder=holder, lease_ms=LEASE_MS, room=room, **more)


def ids(turned: Fetched) -> list[str]:
    return [message.id for message in turned.leased]


def test_a_turn_hands_out_ready_messages_with_their_fields(client: Redis, store: Store) -> None:
    # Given a message with two failures and one death, which was released with fence 4
    seed(client, state_with(ready(A, "a", "b", fence=4, died=1, failed=2, errors=("E", "E")), waiting(B, "b")))
    # When a worker takes a turn
    turned = turn(store, holder="worker")
    # Then it holds that message with a newer fence, its lanes wait behind it, and no bell is set
    [message] = turned.leased
    assert turned == Fetched(lost=[], more=False, suspects=False, leased=[message])
    assert message == Leased(
        A,
        fence(5),
        "q",
        died=1,
        failed=2,
        is_parked=False,
        waited_s=message.waited_s,
        replayed_s=None,
        alive_s=None,
        stored=b"body of 1:10",
    )
    held = leased(A, "a", "b", fence=5, holder="worker", died=1, failed=2, errors=("E", "E"))
    assert read(client) == state_with(held, waiting(B, "b"), counts={"handed_out": 1})


def test_a_hand_out_after_a_death_has_the_recovery_time(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a", fence=5, died=1, alive=7), ready(B, "b", fence=5, parked="why")))
    after_a_death, after_a_park = turn(store).leased
    assert round((after_a_death.alive_s or 0) / 60) == 7
    assert (after_a_park.alive_s, after_a_park.is_parked, after_a_park.is_first) == (None, True, False)
    assert read(client) == state_with(
        leased(A, "a", fence=6, died=1, alive=7),
        leased(B, "b", fence=6, parked="why"),
        counts={"handed_out": 2},
    )


def test_times_of_workers_are_added_up(client: Redis, store: Store) -> None:
    first, second = Times(), Times()
    for seconds in (0.0004, 0.001, 0.0011, 601):
        first.note(RUN, "shop.0", seconds)
    second.note(RUN, "shop.1", 0.001)
    second.note(WAIT, "q", 0.3)
    for times in (first, second):
        turn(store, times=times)
    assert read(client).times == {
        "run 0.001 shop": 3,
        "run 0.0025 shop": 1,
        "run +Inf shop": 1,
        "run sum shop": 601_003_500,
        "wait 0.5 q": 1,
        "wait sum q": 300_000,
    }


def test_totals_of_many_fields_stay_exact(client: Redis, store: Store) -> None:
    # Given more fields than fit into one command, and sums that Lua may format with an exponent (3e+9)
    sums = {f"run sum {number}": 3 * 10**9 + number for number in range(2001)} | {"wait sum q": 4 * 10**15}
    for _ in range(2):
        turn(store, times=sums)
    assert read(client).times == {name: 2 * each for name, each in sums.items()}


def test_the_first_fence_is_the_clock(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a")))
    turn(store)
    assert read(client) == state_with(leased(A, "a", fence=CLOCK), counts={"handed_out": 1})


def test_a_turn_settles_and_leases_the_next(client: Redis, store: Store) -> None:
    # Given a message of two lanes, with others behind it
    given = [leased(A, "a", "b", fence=4, errors=("E",)), waiting(B, "b", fence=1), waiting(C, "a", fence=1)]
    seed(client, state_with(*given, waiting(D, "a")))
    # When its worker settles it in a turn
    turned = turn(store, settles=[(A, fence(4))])
    # Then no key of it is left, and the next message of each lane is handed out
    assert ids(turned) == [C, B]
    assert read(client) == state_with(
        leased(B, "b", fence=2), leased(C, "a", fence=2), waiting(D, "a"), counts={"settled": 1, "handed_out": 2}
    )


def test_no_message_key_is_left_when_all_are_settled(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", "b", errors=("E",)), leased(B), bells=["q"]))
    assert turn(store, settles=[(A, fence(1)), (B, fence(1))]) == NOTHING
    assert read(client) == state_with(counts={"settled": 2})
    assert sorted(client.keys()) == [keys.COUNTS.encode(), keys.SETTLED.encode()]


def test_a_successor_waits_for_its_other_lane(client: Redis, store: Store) -> None:
    given = [leased(B, "b", queue="other"), waiting(C, "a", "b")]
    seed(client, state_with(leased(A, "a"), *given))
    assert turn(store, settles=[(A, fence(1))]) == NOTHING
    assert read(client) == state_with(*given, counts={"settled": 1})


def test_a_successor_in_another_queue_wakes_that_queue(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a", queue="elsewhere")))
    assert turn(store, settles=[(A, fence(1))]) == NOTHING
    assert read(client) == state_with(ready(B, "a", queue="elsewhere"), bells=["elsewhere"], counts={"settled": 1})


@pytest.mark.parametrize(
    "now",
    [
        leased(A, "a", fence=5, holder="another"),
        ready(A, "a", fence=5, queue="other"),
        delayed(A, "a", fence=5),
        buried(A, "a", fence=5),
        waiting(A, fence=4),
    ],
    ids=lambda message: message.state,
)
def test_a_stale_settle_is_lost_and_changes_nothing(client: Redis, store: Store, now: MessageState) -> None:
    # Given a message that was taken from its holder, and one that the holder still has
    given = [now, waiting(C, "a")] if now.state != "buried" else [now, ready(C, "a", queue="other")]
    seed(client, state_with(*given, leased(B, "b", fence=9)))
    # When the holder settles both, and one that does not exist
    turned = turn(store, settles=[(A, fence(4)), (B, fence(9)), (D, fence(1))])
    # Then only the one that it has is settled
    assert turned == Fetched(lost=[A, D], more=False, suspects=False, leased=[])
    assert read(client) == state_with(*given, counts={"settled": 1, "refused": 2})


def test_a_message_is_settled_once(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A)))
    assert turn(store, settles=[(A, fence(1)), (A, fence(1))]).lost == [A]
    assert read(client) == state_with(counts={"settled": 1, "refused": 1})


def test_a_turn_without_room_settles_and_sets_the_bells(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a"), ready(C, "c", queue="other"), bells=[]))
    turned = turn(store, "q", "other", room=0, settles=[(A, fence(1))])
    assert turned == Fetched(lost=[], more=True, suspects=False, leased=[])
    assert read(client) == state_with(ready(B, "a"), ready(C, "c", queue="other"), counts={"settled": 1})


def test_a_turn_hands_out_as_many_as_fit_oldest_first(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A), ready(B), ready(C), bells=[]))
    turned = turn(store, room=2)
    assert (ids(turned), turned.more) == ([A, B], True)
    # The bell is set for the rest
    held = [leased(A, fence=CLOCK), leased(B, fence=CLOCK)]
    assert read(client) == state_with(*held, ready(C), bells=["q"], counts={"handed_out": 2})


def test_the_bell_of_an_empty_queue_is_cleared(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A), ready(B, queue="other"), bells=["q", "empty", "other"]))
    turn(store, "q", "empty")
    assert read(client).bells == {"other"}


def test_a_turn_alternates_between_queues(client: Redis, store: Store) -> None:
    # Given a long queue before two short ones
    seed(client, state_with(ready(A), ready(B), ready(C, queue="r"), ready(D, queue="s")))
    # When a turn has room for three
    turned = turn(store, "q", "r", "s", room=3)
    # Then it hands out one of each queue
    assert [(message.id, message.queue) for message in turned.leased] == [(A, "q"), (C, "r"), (D, "s")]


def test_first_queues_are_emptied_before_the_others(client: Redis, store: Store) -> None:
    # Given two first queues and two others
    ids_of = {"q": [A, B], "r": [C], "s": [D, "1:14"], "t": ["1:15", "1:16"]}
    seed(client, state_with(*(ready(each, queue=queue) for queue, each_id in ids_of.items() for each in each_id)))
    # When a turn has room for all but one
    turned = turn(store, "q", "r", "s", "t", room=6, first=2)
    # Then the messages of the others come after those of the first queues
    assert ids(turned) == [A, C, B, D, "1:15", "1:14"]
    assert turned.more


@pytest.mark.parametrize(("room", "taken"), [(1, [A]), (2, [A, B]), (3, [A, B, C])])
def test_the_first_queue_is_emptied_first(client: Redis, store: Store, room: int, taken: list[str]) -> None:
    seed(client, state_with(ready(A, queue="r"), ready(B, queue="r"), ready(C), bells=[]))
    assert ids(turn(store, "empty", "r", "q", room=room, first=2)) == taken


@pytest.mark.parametrize(
    ("last_room", "taken", "more", "last_wait"),
    [
        (0, [A, B], False, True),  # no room for the last queue
        (2, [A, B], False, True),  # the messages of the other queue have used it up
        (3, [A, B, C], False, True),
        (5, [A, B, C, D], False, False),
    ],
)
def test_a_last_queue_is_read_when_the_others_are_empty(
    client: Redis, store: Store, last_room: int, taken: list[str], more: bool, last_wait: bool
) -> None:
    # Given two messages in a queue, and two in one that is read last
    seed(client, state_with(ready(A), ready(B), ready(C, queue="r"), ready(D, queue="r")))
    # When a turn has room for all, and some room for the last queue
    turned = turn(store, "q", "r", last=1, last_room=last_room)
    # Then it takes the messages of the other queue first, and tells if only the last queue has some left
    assert ids(turned) == taken
    assert (turned.more, turned.last_wait) == (more, last_wait)
    # And the others are left for a worker that has room, which is woken
    left = [each for each in (C, D) if each not in taken]
    assert bool(client.exists("lanes:bell:r")) == bool(left)
    assert ids(turn(store, "q", "r", last=1, last_room=9)) == left


def test_a_last_queue_waits_while_there_is_no_room_for_the_others(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A), ready(B), ready(C, queue="r")))
    turned = turn(store, "q", "r", room=1, last=1, last_room=1)
    assert (ids(turned), turned.more) == ([A], True)


def test_a_message_that_is_not_ready_is_skipped(client: Redis, store: Store) -> None:
    # Given a list of ready ids with one unknown, one leased, one delayed, and one duplicate id
    state = state_with(leased(A, fence=4), delayed(B), ready(C, fence=1))
    state.ready = {"q": ["gone", A, B, C, C]}
    seed(client, state)
    # Then the turn hands out the ready message once, and removes the other entries
    assert ids(turn(store)) == [C]
    assert read(client) == state_with(leased(A, fence=4), delayed(B), leased(C, fence=2), counts={"handed_out": 1})


def test_a_turn_examines_a_bounded_number_of_entries(client: Redis, store: Store) -> None:
    # Given more invalid entries than a turn examines, before a ready message
    state = state_with(ready(A, fence=1))
    state.ready = {"q": [f"gone:{n}" for n in range(100)] + [A]}
    seed(client, state)
    # When a turn is taken, it finds nothing
    assert turn(store, room=1) == Fetched(lost=[], more=True, suspects=False, leased=[])
    # Then the next turn finds the message
    assert ids(turn(store, room=1)) == [A]


def envelope(task_id: object) -> str:
    return json.dumps({"body": "W10=", "headers": {"id": task_id, "task": "t"}, "properties": {}})


@pytest.mark.parametrize(
    "entry",
    [envelope("abc"), envelope(None), envelope("{x"), '{"headers": 1}', '{"half'],
    ids=lambda entry: entry[-22:],
)
def test_a_whole_message_pushed_to_the_queue_is_adopted(client: Redis, store: Store, entry: str) -> None:
    # Given an entry that a stock Celery client pushed to the queue's list
    seed(client, state_with(ready(B)))
    client.lpush("q", entry)
    # When it is handed out and released
    [_, adopted] = turn(store).leased
    assert adopted.stored.decode() == entry
    assert store.pending() == 2
    store.release([(adopted.id, adopted.fence)])
    # Then it is handed out again, like any message without lanes, until it is settled
    [again] = turn(store).leased
    assert (again.id, again.stored.decode()) == (adopted.id, entry)
    turn(store, settles=[(again.id, again.fence)])
    assert read(client).messages.keys() == {B}
    assert store.pending() == 1


def test_an_adopted_message_gets_an_unused_id(client: Redis, store: Store) -> None:
    # Given a stored message, and two foreign ones with the same id
    seed(client, state_with(leased("abc", "a")))
    client.lpush("q", envelope("abc"), envelope("abc"))
    # Then each is handed out with its own id
    adopted = turn(store).leased
    assert len({message.id for message in adopted} | {"abc"}) == 3
    assert read(client).lanes == {"a": ["abc"]}


def test_an_id_may_look_like_a_foreign_entry(client: Redis, store: Store) -> None:
    seed(client, state_with(ready("{odd}", "a", fence=1), waiting(B, "a")))
    assert ids(turn(store)) == ["{odd}"]
    assert read(client) == state_with(leased("{odd}", "a", fence=2), waiting(B, "a"), counts={"handed_out": 1})


def test_a_message_without_its_body_is_buried_and_its_lane_continues(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a", fence=1), waiting(B, "a", fence=1)))
    client.delete(keys.body(A))
    assert ids(turn(store)) == [B]
    expected = state_with(
        buried(A, "a", fence=3, errors=("Buried",)), leased(B, "a", fence=2), counts={"handed_out": 1, "buried": 1}
    )
    del expected.bodies[A]
    assert read(client) == expected
    assert b"body was lost" in client.lindex(keys.errors(A), 0)


def test_a_message_with_too_many_deaths_is_buried(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a", fence=1, died=MAX_DEATHS), waiting(B, "a", fence=1)))
    assert ids(turn(store)) == [B]
    assert read(client) == state_with(
        buried(A, "a", fence=2, died=MAX_DEATHS, errors=("Buried",)),
        leased(B, "a", fence=2),
        counts={"handed_out": 1, "buried": 1},
    )
    assert b"died 5 times" in client.lindex(keys.errors(A), 0)


@pytest.mark.parametrize(
    ("order", "holding", "handed_out", "suspects"),
    [
        ([A, B], 0, [A], False),  # alone, although there is room for more
        ([A, B], 1, [B], True),  # not to a worker that holds others
        ([B, A, C], 0, [B, C], True),  # not together with others
        ([A], 1, [], True),
    ],
)
def test_a_suspect_is_handed_out_alone(
    client: Redis, store: Store, order: Sequence[str], holding: int, handed_out: list[str], suspects: bool
) -> None:
    # Given a message with two deaths, and others
    seed(client, state_with(*[ready(each, each, fence=1, died=2 if each == A else 0) for each in order]))
    # When a worker has room for three
    turned = turn(store, room=3, holding=holding)
    # Then the suspect is handed out alone, or stays first in the queue; the others are handed out
    left = [each for each in order if each not in handed_out]
    assert (ids(turned), turned.suspects, turned.more) == (handed_out, suspects, bool(left))
    state = read(client)
    assert state.ready == ({"q": left} if left else {})
    assert all(state.messages[each] == ready(each, each, fence=1, died=2 if each == A else 0) for each in left)


def test_several_suspects_keep_their_order(client: Redis, store: Store) -> None:
    given = [ready(each, each, fence=1, died=2) for each in (A, B, C)]
    seed(client, state_with(*given))
    assert turn(store, holding=1) == Fetched(lost=[], more=True, suspects=True, leased=[])
    assert read(client) == state_with(*given)


def test_a_replayed_message_has_the_time_since_its_replay(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a", fence=1, replayed=3)))
    [message] = turn(store).leased
    assert message.replayed_s is not None
    assert round(message.replayed_s / 60) == 3


def test_the_wait_is_measured_since_append_or_replay(client: Redis, store: Store) -> None:
    # Given two messages that were appended ten minutes ago, one of which was buried and is replayed now
    store.append([NewMessage(each, "q", "{}", []) for each in (A, B)])
    for each in (A, B):
        client.hincrby(keys.message(each), "seq", -600 * 1_000_000)
    client.hset(keys.message(B), "state", "buried")
    store.replay(B)
    # When both are handed out
    waited = {message.id: round(message.waited_s / 60) for message in turn(store).leased}
    # Then the replayed one has not waited
    assert waited == {A: 10, B: 0}


def test_a_lease_starts_at_the_hand_out(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A)))
    turn(store)
    assert read(client).leases == {A: LEASE_MINUTES}


def test_holds_checks_state_and_fence(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, fence=4), ready(B, fence=4)))
    assert store.holds(A, fence(4))
    assert not store.holds(A, fence(3))
    assert not store.holds(B, fence(4))
    assert not store.holds("gone", fence(4))
