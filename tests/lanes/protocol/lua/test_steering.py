"""A run takes the message that follows it in all its lanes, if it is of its group, and returns those that it took."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from celery_lanes import PublishRefused
from celery_lanes.protocol import Group, NewMessage, Outcome, Store, keys
from celery_lanes.protocol.messages import append_row
from celery_lanes.protocol.verbs import Taken
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    LEASE_MS,
    STEERING,
    MessageState,
    buried,
    fence,
    group_field,
    leased,
    seed,
    state_with,
    waiting,
)

A, B, C, D = "1:10", "1:11", "1:12", "1:13"
GROUP = group_field(STEERING)


def body(*names: str) -> str:
    return "".join(f"\x1e {name}" for name in names)


def run(*names: str, **more: Any) -> MessageState:
    return leased(A, "a", "b", group=GROUP, body=body(*names), size=len(names), **more)


def behind(message_id: str, *names: str, **more: Any) -> MessageState:
    return waiting(
        message_id, "a", "b", **{"group": GROUP, "body": body(*names), "size": len(names), "due": 10, **more}
    )


def take(store: Store, known: int = 0, place: int | None = 3) -> Taken | None:
    return store.take(A, fence(1), known=known, place=place)


def test_a_run_takes_the_messages_of_a_group_one_by_one(client: Redis, store: Store) -> None:
    # Given a run, and two messages that wait together behind it
    seed(client, state_with(run("A"), behind(B, "B", "C"), waiting(D, "a")))
    # When it only looks, nothing changes
    assert take(store, place=None) == Taken([], [], True)
    # When it takes one, the other stays in its place
    assert take(store) == Taken([3], [b" B"], True)
    assert read(client) == state_with(
        run("A", "B", taken=((3, B),)), behind(B, "C"), waiting(D, "a"), counts={"steered": 1}
    )
    # When it takes the other, only its own record is left
    assert take(store, known=1, place=5) == Taken([3, 5], [b" C"], False)
    assert read(client) == state_with(
        run("A", "B", "C", taken=((3, B), (5, B))), waiting(D, "a"), counts={"steered": 2, "settled": 1}
    )
    assert client.hgetall(keys.SETTLED) == {b"q": b"1"}
    assert take(store, known=2) == Taken([3, 5], [], False)


def test_a_take_whose_answer_was_lost_is_answered_again(client: Redis, store: Store) -> None:
    seed(client, state_with(run("A"), behind(B, "B", "C")))
    take(store)
    found = take(store)
    assert found
    assert (found.places, found.bodies[-1:], found.more) == ([3], [b" B"], True)
    assert read(client).counts == {"steered": 1}


@pytest.mark.parametrize(
    "behind_it",
    [
        pytest.param([behind(B, "B", group=group_field(STEERING._replace(name="other")))], id="of another group"),
        pytest.param([behind(B, "B", queue="r")], id="of another queue"),
        pytest.param([waiting(B, "a", "b")], id="of no group"),
        pytest.param([waiting(B, "a", group=GROUP, body=body("B"))], id="in one of its lanes only"),
        pytest.param([waiting(B, "a"), behind(C, "C")], id="behind another one"),
        pytest.param([behind(B, "B", fence=1, due=None)], id="leased before"),
        pytest.param([], id="none"),
    ],
)
def test_no_other_message_is_taken(client: Redis, store: Store, behind_it: list[MessageState]) -> None:
    state = state_with(run("A"), *behind_it)
    seed(client, state)
    assert take(store) == Taken([], [], False)
    assert read(client) == state


@pytest.mark.parametrize("paused", ["lane:b", "queue:q", "group:q"])
def test_nothing_is_taken_while_it_is_paused(client: Redis, store: Store, paused: str) -> None:
    state = state_with(run("A"), behind(B, "B"), paused=[paused])
    seed(client, state)
    assert take(store) == Taken([], [], False)
    assert read(client) == state


def test_a_late_run_takes_nothing(client: Redis, store: Store) -> None:
    seed(client, state_with(run("A"), behind(B, "B")))
    assert store.take(A, fence(0), known=0, place=0) is None
    assert store.leave(A, fence(0), kept=0) is Outcome.LOST
    assert read(client) == state_with(run("A"), behind(B, "B"), counts={"refused": 2})


def test_one_message_takes_at_most_a_thousand(client: Redis, store: Store) -> None:
    taken = tuple((0, B) for _ in range(1000))
    seed(client, state_with(run("A", taken=taken), behind(C, "C")))
    assert take(store, known=1000) == Taken([0] * 1000, [], False)


def test_a_run_gives_back_what_it_has_not_got_to(client: Redis, store: Store) -> None:
    # Given a run that has taken three messages, with one of another group behind it
    seed(client, state_with(run("A"), behind(B, "B", "C"), behind(D, "D"), waiting("1:14", "a")))
    for known in range(3):
        take(store, known)
    # When it returns all but one
    assert store.leave(A, fence(1), kept=1) is Outcome.DONE
    # Then they are one message, in the place that the first of them had
    assert read(client) == state_with(
        run("A", "B", taken=((3, B),)),
        behind(B, "C", "D", due=None),
        waiting("1:14", "a"),
        counts={"steered": 3, "settled": 2, "appended": 1},
    )
    # And it is ready when the run has ended
    store.commit(A, fence(1), [])
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert (message.id, message.stored) == (B, body("C", "D").encode())


def test_what_is_given_back_joins_the_messages_that_have_arrived_since(client: Redis, store: Store) -> None:
    seed(client, state_with(run("A"), behind(B, "B", "C")))
    take(store)
    assert store.leave(A, fence(1), kept=0) is Outcome.DONE
    assert read(client) == state_with(run("A"), behind(B, "B", "C"), counts={"steered": 1})


def test_what_a_replayed_message_gives_back_follows_it(client: Redis, store: Store) -> None:
    # Given a message that was buried with what it has taken, and is replayed behind another one
    seed(client, state_with(buried(A, "a", group=GROUP, body=body("A", "B"), size=2, taken=((3, B),)), leased(D, "a")))
    assert store.replay(A)
    store.commit(D, fence(1), [])
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert message.stored == body("A", "B").encode()
    # When its run gives that back, and another message arrives
    assert store.leave(A, message.fence, kept=0) is Outcome.DONE
    store.append([NewMessage(C, "q", "C", ["a"])])
    # Then they follow in order
    assert read(client).lanes == {"a": [A, B, C]}


@pytest.mark.parametrize("first", [run("A"), leased(A, "a", "b", group=GROUP, body=body("A"), size=3)])
def test_the_holder_is_notified_of_a_message_behind_its_run(client: Redis, store: Store, first: MessageState) -> None:
    seed(client, state_with(first))
    with client.pubsub() as listener:
        listener.subscribe(keys.INTERRUPTS + "me")
        listener.get_message(timeout=60)
        store.append([NewMessage(B, "q", "B", ["a", "b"], group=STEERING)])
        message = listener.get_message(timeout=60)
        assert message
        assert message["data"] == f"{A}#{fence(1)} arrived".encode()
        # And not of one that joins it
        store.append([NewMessage(C, "q", "C", ["a", "b"], group=STEERING)])
        client.publish(keys.INTERRUPTS + "me", "end")
        message = listener.get_message(timeout=60)
        assert message
        assert message["data"] == b"end"
    assert read(client).messages[B] == behind(B, "B", "C")


def test_the_arguments_and_the_stored_form(client: Redis, store: Store) -> None:
    """Another release reads them: one that does not know steering sees a group that nothing interrupts."""
    message = NewMessage(B, "q", b'{"headers":{}}\n[]', ["a"], group=Group("g", 1, 2, 3, steers=True))
    stored, group = b'\x1e {"headers":{}}\n[]', "1 2 3 2 g"
    assert append_row(message) == (B, "q", stored, "", "", "", group, 0, 0, "", "a")
    seed(client, state_with(run("A"), behind(B, "B")))
    take(store, place=7)
    record = client.hgetall(keys.message(A))
    assert record[b"taken"] == b'[[7,"1:11","2"]]'
    assert (record[b"size"], client.get(keys.body(A))) == (b"2", b"\x1e A\x1e B")


def test_a_group_is_interrupted_or_steered(store: Store) -> None:
    group = Group("g", 1, 2, 3, interrupts=True, steers=True)
    with pytest.raises(PublishRefused, match="interrupts or steers"):
        store.append([NewMessage(B, "q", "B", ["a"], group=group)])
