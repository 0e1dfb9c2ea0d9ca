"""turn: settle what is done and hand out what is ready, in one step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from redis import Redis

from chatlanes.lanes.leases.timings import RUN, WAIT, Times
from chatlanes.lanes.protocol import keys
from chatlanes.lanes.protocol.commands import MAX_DEATHS, NewMessage
from chatlanes.lanes.protocol.replies import Leased, Turned
from chatlanes.lanes.protocol.store import Store
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
    standing,
    waiting,
)

A, B, C, D = "1:10", "1:11", "1:12", "1:13"
NOTHING = Turned(lost=[], more=False, suspects=False, leased=[])


def turn(store: Store, *queues: str, room: int = 10, holder: str = "me", **more: Any) -> Turned:
    return store.turn(queues or ["q"], holder=holder, lease_ms=LEASE_MS, room=room, **more)


def ids(turned: Turned) -> list[str]:
    return [message.id for message in turned.leased]


def test_it_hands_out_ready_messages_with_their_fields(client: Redis, store: Store) -> None:
    # Given a message that failed once, died once, and was taken back with fence 4
    seed(client, standing(ready(A, "a", "b", fence=4, died=1, failed=2, errors=("E", "E")), waiting(B, "b")))
    # When a worker takes a turn
    turned = turn(store, holder="worker")
    # Then it holds that one with a newer fence, its lanes still stand behind it, and nobody is rung
    [message] = turned.leased
    assert turned == Turned(lost=[], more=False, suspects=False, leased=[message])
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
    assert read(client) == standing(held, waiting(B, "b"), counts={"handed_out": 1})


def test_a_hand_out_after_a_death_has_the_recovery_time(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A, "a", fence=5, died=1, alive=7), ready(B, "b", fence=5, parked="why")))
    after_a_death, after_a_park = turn(store).leased
    assert round((after_a_death.alive_s or 0) / 60) == 7
    assert (after_a_park.alive_s, after_a_park.is_parked, after_a_park.is_first) == (None, True, False)
    assert read(client) == standing(
        leased(A, "a", fence=6, died=1, alive=7),
        leased(B, "b", fence=6, parked="why"),
        counts={"handed_out": 2},
    )


def test_times_are_added_to_those_of_others(client: Redis, store: Store) -> None:
    ours, theirs = Times(), Times()
    for seconds in (0.0004, 0.001, 0.0011, 601):
        ours.note(RUN, "shop.0", seconds)
    theirs.note(RUN, "shop.1", 0.001)
    theirs.note(WAIT, "q", 0.3)
    for times in (ours, theirs):
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
    # Given more fields than go into one command, and sums that a number could be written short for (3e+9)
    sums = {f"run sum {number}": 3 * 10**9 + number for number in range(2001)} | {"wait sum q": 4 * 10**15}
    for _ in range(2):
        turn(store, times=sums)
    assert read(client).times == {name: 2 * each for name, each in sums.items()}


def test_the_first_fence_is_the_clock(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A, "a")))
    turn(store)
    assert read(client) == standing(leased(A, "a", fence=CLOCK), counts={"handed_out": 1})


def test_a_turn_settles_and_leases_the_next(client: Redis, store: Store) -> None:
    # Given a message that stands in two lanes, with others behind it
    given = [leased(A, "a", "b", fence=4, errors=("E",)), waiting(B, "b", fence=1), waiting(C, "a", fence=1)]
    seed(client, standing(*given, waiting(D, "a")))
    # When its worker settles it in a turn
    turned = turn(store, settles=[(A, fence(4))])
    # Then not a key of it is left, and the next of each lane is handed out
    assert ids(turned) == [C, B]
    assert read(client) == standing(
        leased(B, "b", fence=2), leased(C, "a", fence=2), waiting(D, "a"), counts={"settled": 1, "handed_out": 2}
    )


def test_when_all_is_settled_no_key_is_left(client: Redis, store: Store) -> None:
    seed(client, standing(leased(A, "a", "b", errors=("E",)), leased(B), bells=["q"]))
    assert turn(store, settles=[(A, fence(1)), (B, fence(1))]) == NOTHING
    assert read(client) == standing(counts={"settled": 2})
    assert sorted(client.keys()) == [keys.COUNTS.encode(), keys.SETTLED.encode()]


def test_a_successor_waits_for_its_other_lane(client: Redis, store: Store) -> None:
    given = [leased(B, "b", queue="other"), waiting(C, "a", "b")]
    seed(client, standing(leased(A, "a"), *given))
    assert turn(store, settles=[(A, fence(1))]) == NOTHING
    assert read(client) == standing(*given, counts={"settled": 1})


def test_a_successor_in_another_queue_wakes_that_queue(client: Redis, store: Store) -> None:
    seed(client, standing(leased(A, "a"), waiting(B, "a", queue="elsewhere")))
    assert turn(store, settles=[(A, fence(1))]) == NOTHING
    assert read(client) == standing(ready(B, "a", queue="elsewhere"), bells=["elsewhere"], counts={"settled": 1})


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
    # Given a message that was taken from its holder, and one that it still holds
    given = [now, waiting(C, "a")] if now.state != "buried" else [now, ready(C, "a", queue="other")]
    seed(client, standing(*given, leased(B, "b", fence=9)))
    # When it settles both, and one that is gone
    turned = turn(store, settles=[(A, fence(4)), (B, fence(9)), (D, fence(1))])
    # Then only its own is settled
    assert turned == Turned(lost=[A, D], more=False, suspects=False, leased=[])
    assert read(client) == standing(*given, counts={"settled": 1, "refused": 2})


def test_a_message_is_settled_once(client: Redis, store: Store) -> None:
    seed(client, standing(leased(A)))
    assert turn(store, settles=[(A, fence(1)), (A, fence(1))]).lost == [A]
    assert read(client) == standing(counts={"settled": 1, "refused": 1})


def test_without_room_it_settles_and_rings_for_others(client: Redis, store: Store) -> None:
    seed(client, standing(leased(A, "a"), waiting(B, "a"), ready(C, "c", queue="other"), bells=[]))
    turned = turn(store, "q", "other", room=0, settles=[(A, fence(1))])
    assert turned == Turned(lost=[], more=True, suspects=False, leased=[])
    assert read(client) == standing(ready(B, "a"), ready(C, "c", queue="other"), counts={"settled": 1})


def test_it_takes_as_many_as_it_has_room_for_oldest_first(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A), ready(B), ready(C), bells=[]))
    turned = turn(store, room=2)
    assert (ids(turned), turned.more) == ([A, B], True)
    # Another worker is rung for what is left
    held = [leased(A, fence=CLOCK), leased(B, fence=CLOCK)]
    assert read(client) == standing(*held, ready(C), bells=["q"], counts={"handed_out": 2})


def test_an_emptied_queue_has_no_bell_left(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A), ready(B, queue="theirs"), bells=["q", "empty", "theirs"]))
    turn(store, "q", "empty")
    assert read(client).bells == {"theirs"}


def test_the_queues_take_turns(client: Redis, store: Store) -> None:
    # Given a long queue before two short ones
    seed(client, standing(ready(A), ready(B), ready(C, queue="r"), ready(D, queue="s")))
    # When there is room for three
    turned = turn(store, "q", "r", "s", room=3)
    # Then each queue had its turn
    assert [(message.id, message.queue) for message in turned.leased] == [(A, "q"), (C, "r"), (D, "s")]


def test_the_first_queues_are_emptied_before_the_others_take_turns(client: Redis, store: Store) -> None:
    # Given two queues to look at first, and two others
    ids_of = {"q": [A, B], "r": [C], "s": [D, "1:14"], "t": ["1:15", "1:16"]}
    seed(client, standing(*(ready(each, queue=queue) for queue, each_id in ids_of.items() for each in each_id)))
    # When there is room for all but one
    turned = turn(store, "q", "r", "s", "t", room=6, first=2)
    # Then the others had their turn after them
    assert ids(turned) == [A, C, B, D, "1:15", "1:14"]
    assert turned.more


@pytest.mark.parametrize(("room", "taken"), [(1, [A]), (2, [A, B]), (3, [A, B, C])])
def test_the_first_queue_is_emptied_first(client: Redis, store: Store, room: int, taken: list[str]) -> None:
    seed(client, standing(ready(A, queue="r"), ready(B, queue="r"), ready(C), bells=[]))
    assert ids(turn(store, "empty", "r", "q", room=room, first=2)) == taken


def test_a_message_that_is_not_ready_is_skipped(client: Redis, store: Store) -> None:
    # Given a list of ready ids in which one is gone, one is leased, one delayed, and one stands twice
    state = standing(leased(A, fence=4), delayed(B), ready(C, fence=1))
    state.ready = {"q": ["gone", A, B, C, C]}
    seed(client, state)
    # Then it hands out what is ready, once, and forgets the leftovers
    assert ids(turn(store)) == [C]
    assert read(client) == standing(leased(A, fence=4), delayed(B), leased(C, fence=2), counts={"handed_out": 1})


def test_it_looks_at_no_more_than_its_budget(client: Redis, store: Store) -> None:
    # Given more leftovers than a turn looks at, before something that is ready
    state = standing(ready(A, fence=1))
    state.ready = {"q": [f"gone:{n}" for n in range(100)] + [A]}
    seed(client, state)
    # When turns are taken
    assert turn(store, room=1) == Turned(lost=[], more=True, suspects=False, leased=[])
    # Then the next one gets there
    assert ids(turn(store, room=1)) == [A]


def envelope(task_id: object) -> str:
    return json.dumps({"body": "W10=", "headers": {"id": task_id, "task": "t"}, "properties": {}})


@pytest.mark.parametrize(
    "entry",
    [envelope("abc"), envelope(None), envelope("{x"), '{"headers": 1}', '{"half'],
    ids=lambda entry: entry[-22:],
)
def test_a_whole_message_pushed_to_the_queue_is_adopted(client: Redis, store: Store, entry: str) -> None:
    # Given what stock Celery does with a queue's list
    seed(client, standing(ready(B)))
    client.lpush("q", entry)
    # When it is handed out, and its worker gives it back
    [_, adopted] = turn(store).leased
    assert adopted.stored.decode() == entry
    assert store.pending() == 2
    store.release([(adopted.id, adopted.fence)])
    # Then it is handed out again, as any message without a lane, until it is settled
    [again] = turn(store).leased
    assert (again.id, again.stored.decode()) == (adopted.id, entry)
    turn(store, settles=[(again.id, again.fence)])
    assert read(client).messages.keys() == {B}
    assert store.pending() == 1


def test_an_adopted_message_takes_no_id_that_is_in_use(client: Redis, store: Store) -> None:
    # Given a stored message, and a foreign one with the same id, twice
    seed(client, standing(leased("abc", "a")))
    client.lpush("q", envelope("abc"), envelope("abc"))
    # Then each is handed out under an id of its own
    adopted = turn(store).leased
    assert len({message.id for message in adopted} | {"abc"}) == 3
    assert read(client).lanes == {"a": ["abc"]}


def test_an_id_of_ours_may_look_like_a_foreign_entry(client: Redis, store: Store) -> None:
    seed(client, standing(ready("{odd}", "a", fence=1), waiting(B, "a")))
    assert ids(turn(store)) == ["{odd}"]
    assert read(client) == standing(leased("{odd}", "a", fence=2), waiting(B, "a"), counts={"handed_out": 1})


def test_a_message_without_its_body_is_buried_and_its_lane_goes_on(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A, "a", fence=1), waiting(B, "a", fence=1)))
    client.delete(keys.body(A))
    assert ids(turn(store)) == [B]
    expected = standing(
        buried(A, "a", fence=3, errors=("Buried",)), leased(B, "a", fence=2), counts={"handed_out": 1, "buried": 1}
    )
    del expected.bodies[A]
    assert read(client) == expected
    assert b"body was lost" in client.lindex(keys.errors(A), 0)


def test_a_message_with_too_many_deaths_is_buried(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A, "a", fence=1, died=MAX_DEATHS), waiting(B, "a", fence=1)))
    assert ids(turn(store)) == [B]
    assert read(client) == standing(
        buried(A, "a", fence=2, died=MAX_DEATHS, errors=("Buried",)),
        leased(B, "a", fence=2),
        counts={"handed_out": 1, "buried": 1},
    )
    assert b"died 5 times" in client.lindex(keys.errors(A), 0)


@pytest.mark.parametrize(
    ("order", "holding", "given_out", "suspects"),
    [
        ([A, B], 0, [A], False),  # alone, though there is room
        ([A, B], 1, [B], True),  # not beside what its worker holds
        ([B, A, C], 0, [B, C], True),  # not beside what this turn hands out
        ([A], 1, [], True),
    ],
)
def test_a_suspect_is_handed_out_alone(
    client: Redis, store: Store, order: Sequence[str], holding: int, given_out: list[str], suspects: bool
) -> None:
    # Given a message that two workers died of, and others
    seed(client, standing(*[ready(each, each, fence=1, died=2 if each == A else 0) for each in order]))
    # When a worker has room for three
    turned = turn(store, room=3, holding=holding)
    # Then the suspect gets a worker of its own, or waits at the front for one; the others go on
    left = [each for each in order if each not in given_out]
    assert (ids(turned), turned.suspects, turned.more) == (given_out, suspects, bool(left))
    state = read(client)
    assert state.ready == ({"q": left} if left else {})
    assert all(state.messages[each] == ready(each, each, fence=1, died=2 if each == A else 0) for each in left)


def test_several_suspects_keep_their_order(client: Redis, store: Store) -> None:
    given = [ready(each, each, fence=1, died=2) for each in (A, B, C)]
    seed(client, standing(*given))
    assert turn(store, holding=1) == Turned(lost=[], more=True, suspects=True, leased=[])
    assert read(client) == standing(*given)


def test_a_replayed_one_says_how_long_ago(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A, "a", fence=1, replayed=3)))
    [message] = turn(store).leased
    assert message.replayed_s is not None
    assert round(message.replayed_s / 60) == 3


def test_it_reports_the_wait_since_append_or_replay(client: Redis, store: Store) -> None:
    # Given two messages that were appended ten minutes ago, one of which was buried meanwhile and is replayed now
    store.append([NewMessage(each, "q", "{}", []) for each in (A, B)])
    for each in (A, B):
        client.hincrby(keys.message(each), "seq", -600 * 1_000_000)
    client.hset(keys.message(B), "state", "buried")
    store.replay(B)
    # When both are handed out
    waited = {message.id: round(message.waited_s / 60) for message in turn(store).leased}
    # Then the replayed one is new
    assert waited == {A: 10, B: 0}


def test_a_lease_runs_from_now(client: Redis, store: Store) -> None:
    seed(client, standing(ready(A)))
    turn(store)
    assert read(client).leases == {A: LEASE_MINUTES}


def test_holds_asks_for_state_and_fence(client: Redis, store: Store) -> None:
    seed(client, standing(leased(A, fence=4), ready(B, fence=4)))
    assert store.holds(A, fence(4))
    assert not store.holds(A, fence(3))
    assert not store.holds(B, fence(4))
    assert not store.holds("gone", fence(4))
