"""Interrupts: a message that would join the group of a run takes it from its worker, and the next run gets both."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from celery_lanes.protocol import Kind, NewMessage, Noted, Outcome, PreviousCall, Set, Shielded, Store, keys
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    INTERRUPTING,
    LEASE_MS,
    QUIET_MINUTES,
    TALK,
    MessageState,
    collecting,
    delayed,
    fence,
    group_field,
    leased,
    seed,
    state_with,
    waiting,
)

A, B, C, D = "1:10", "1:11", "1:12", "1:13"
GROUP = group_field(INTERRUPTING)


def new(message_id: str, *lanes: str, **more: Any) -> NewMessage:
    return NewMessage(message_id, "q", f"body of {message_id}", lanes or ["a"], **({"group": INTERRUPTING} | more))


def body_of(*ids: str) -> str:
    return "".join(f"\x1dbody of {each}" for each in ids)


def running(*lanes: str, **more: Any) -> MessageState:
    return leased(A, *lanes or "a", **({"group": GROUP, "body": body_of(A)} | more))


def lease(client: Redis, store: Store) -> str:
    """Lease the group as soon as it is due. Returns its fence."""
    client.zadd(keys.COLLECTING, {A: 1})
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=1).leased
    return message.fence


def test_a_newer_message_takes_the_group_from_its_run(client: Redis, store: Store) -> None:
    # Given a group that runs for the second time
    seed(client, state_with(running(died=1)))
    # When a message of the group arrives
    store.append([new(B)])
    # Then the group is collected again, with both messages, and its worker does not have it any more
    assert read(client) == state_with(
        collecting(A, "a", group=GROUP, size=2, body=body_of(A, B), fence=2, is_open=True, interrupted=1, died=1),
        bells=["q"],
        counts={"collected": 1, "interrupted": 1},
    )
    # And the next run gets both, and no attempt is counted
    lease(client, store)
    assert read(client) == state_with(
        running(size=2, body=body_of(A, B), fence=3, interrupted=1, died=1),
        counts={"collected": 1, "interrupted": 1, "handed_out": 1},
    )


def test_further_messages_join_until_the_next_run(client: Redis, store: Store) -> None:
    seed(client, state_with(running()))
    store.append([new(B)])
    store.append([new(C), new(D)])
    state = read(client)
    assert state.bodies == {A: body_of(A, B, C), D: body_of(D)}
    assert (state.messages[A].state, state.counts["interrupted"]) == ("ready", 1)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        pytest.param(running(), new(B, group=TALK), id="another group"),
        pytest.param(running(), new(B, group=None), id="no group"),
        pytest.param(running(), new(B, "a", "b"), id="other lanes"),
        pytest.param(running(size=3), new(B), id="full"),
        pytest.param(running(is_shielded=True), new(B), id="shielded"),
        pytest.param(delayed(A, "a", group=GROUP), new(B), id="waits for its retry"),
        pytest.param(leased(A, "a", group=group_field(TALK)), new(B, group=TALK), id="does not interrupt"),
    ],
)
def test_other_messages_wait_behind_the_run(
    client: Redis, store: Store, first: MessageState, message: NewMessage
) -> None:
    seed(client, state_with(first))
    store.append([message])
    state = read(client)
    assert (state.messages[A].fence, state.messages[A].state) == (1, first.state)
    assert state.messages[B].state == "waiting"
    assert "interrupted" not in state.counts


@pytest.mark.parametrize(("count", "state"), [(999, "collecting"), (1_001, "leased")])
def test_a_run_that_has_made_very_many_calls_is_not_interrupted(
    client: Redis, store: Store, count: int, state: str
) -> None:
    # Given a run that has made this many calls
    seed(client, state_with(running()))
    client.hset(keys.journal(A), mapping={f"{number}": f"done {fence(1)} x y" for number in range(1, count + 1)})
    # When a newer message arrives, and after a shield
    store.append([new(B)])
    assert store.shield(A, fence(1), shielded=True) is (Shielded.LOST if state == "collecting" else Shielded.DONE)
    # Then it waits behind the run, if the calls are too many to be kept
    assert client.hget(keys.message(A), "state") == state.encode()
    if state == "leased":
        assert store.shield(A, fence(1), shielded=False) is Shielded.DONE
        assert client.hget(keys.message(B), "state") == b"waiting"


def test_the_holder_is_told(client: Redis, store: Store) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(f"{keys.INTERRUPTS}me")
        listener.get_message(timeout=5)
        seed(client, state_with(running()))
        store.append([new(B)])
        message = listener.get_message(timeout=5)
    assert message is not None
    assert message["data"].decode() == f"{A}#{fence(1)}"


def test_an_interrupted_run_changes_nothing(client: Redis, store: Store) -> None:
    # Given an interrupted run
    seed(client, state_with(running()))
    store.append([new(B)])
    before = read(client)
    # When it continues, then every step is refused
    mine = A, fence(1)
    assert store.commit(*mine, [Set("kept:x", b"late")]) is Outcome.LOST
    assert store.begin(*mine, lease_ms=LEASE_MS, position="1", what="x").noted is Noted.LOST
    assert store.end(*mine, position="1", what="x", kind=Kind.DONE) is Outcome.LOST
    assert store.retry(*mine, delay_ms=0, problem={}) is Outcome.LOST
    assert store.park(*mine, delay_ms=0) is Outcome.LOST
    assert store.bury(*mine, {}) is Outcome.LOST
    assert store.shield(*mine, shielded=True) is Shielded.LOST
    assert store.renew([mine], LEASE_MS) == store.release([mine]) == [A]
    after = read(client)
    assert after.counts.pop("refused") == 8
    assert after == before


def calls(client: Redis, by: str) -> list[tuple[str, bytes | None, str]]:
    """The calls that the run with this fence has left."""
    found: list[PreviousCall] = Store(client).previous_calls(A)
    assert {call.fence for call in found} == {int(by)}
    return [(call.what, call.outcome, call.position) for call in found]


def begin(store: Store, by: str, position: str, what: str) -> Noted:
    return store.begin(A, by, lease_ms=LEASE_MS, position=position, what=what).noted


def test_the_next_run_sees_the_calls_of_the_interrupted_one(client: Redis, store: Store) -> None:
    # Given a run with one call of each kind
    store.append([new(A)])
    first = lease(client, store)
    for position, what in {"1": "done", "2": "refused", "10": "under_way", "11": "failing"}.items():
        begin(store, first, position, what)
    store.end(A, first, position="1", what="done", kind=Kind.DONE, outcome=b"its result")
    store.end(A, first, position="2", what="refused", kind=Kind.REFUSED)
    # When it is interrupted
    store.append([new(B)])
    # Then the calls that may have been made are left, and the next run is not answered from them
    done = ("done", b"its result", "1")
    assert calls(client, first) == [done, ("under_way", None, "10"), ("failing", None, "11")]
    second = lease(client, store)
    assert begin(store, second, "1", "done") is Noted.BEGUN
    # And outcomes that arrive late are added
    store.end(A, first, position="10", what="under_way", kind=Kind.DONE, outcome=b"late")
    store.end(A, first, position="11", what="failing", kind=Kind.REFUSED)
    assert calls(client, first) == [done, ("under_way", b"late", "10")]
    assert client.hget(keys.COUNTS, "refused") is None
    # And they are deleted with the message
    assert store.commit(A, second) is Outcome.DONE
    assert not client.exists(keys.journal(A))


def test_the_calls_of_a_run_that_died_are_left_by_the_run_after_it(client: Redis, store: Store) -> None:
    store.append([new(A)])
    first = lease(client, store)
    begin(store, first, "1", "done")
    store.end(A, first, position="1", what="done", kind=Kind.DONE, outcome=b"its result")
    assert store.release([(A, first)], died=True) == []
    second = lease(client, store)
    assert begin(store, second, "1", "done") is Noted.DONE
    store.append([new(B)])
    assert calls(client, second) == [("done", b"its result", "1")]


def test_a_message_that_waited_for_the_shield_ends_the_run(client: Redis, store: Store) -> None:
    # Given a shielded run, and two messages of its group that arrived since
    seed(client, state_with(running()))
    assert store.shield(A, fence(1), shielded=True) is Shielded.DONE
    store.append([new(B), new(C)])
    assert read(client).messages[B] == waiting(B, "a", group=GROUP, size=2, body=body_of(B, C), due=QUIET_MINUTES)
    # When the shield ends
    assert store.shield(A, fence(1), shielded=False) is Shielded.INTERRUPTED
    # Then the group has all of them, is full, and nothing is left of the others
    state = read(client)
    assert state.bodies == {A: body_of(A, B, C)}
    assert state.messages[A].state == "ready"
    assert (state.pending, state.lanes) == ({"q": [A]}, {"a": [A]})
    assert store.look().pending == 0  # the seeded message was not counted; the absorbed one is counted as settled


def test_a_message_waits_behind_the_run_of_a_closed_group(client: Redis, store: Store) -> None:
    # Given a run that no message interrupts any more, and that has begun a shield
    seed(client, state_with(running()))
    assert store.close_group(A, fence(1)) is True
    assert store.shield(A, fence(1), shielded=True) is Shielded.DONE
    # When a message of its group arrives, and the shield ends
    store.append([new(B)])
    assert store.shield(A, fence(1), shielded=False) is Shielded.DONE
    # Then the message begins a group of its own
    state = read(client)
    assert (state.messages[A].state, state.messages[B].state) == ("leased", "waiting")
    assert store.commit(A, fence(1)) is Outcome.DONE
    assert read(client).messages[B].group == GROUP
    # And a run that has lost its lease changes nothing
    assert store.close_group(A, fence(1)) is False


def test_a_stop_ends_the_run_of_a_closed_group(client: Redis, store: Store) -> None:
    seed(client, state_with(running()))
    store.close_group(A, fence(1))
    store.append([new(B, group=None)._replace(stops=True)])
    assert read(client).messages[A].state == "ready"


def test_a_shield_without_a_newer_message_ends_without_effect(client: Redis, store: Store) -> None:
    seed(client, state_with(running(is_shielded=True), waiting(B, "a")))
    assert store.shield(A, fence(1), shielded=False) is Shielded.DONE
    assert read(client) == state_with(running(), waiting(B, "a"))


def test_a_group_with_a_message_behind_it_is_due_when_the_shield_ends(client: Redis, store: Store) -> None:
    seed(client, state_with(running(is_shielded=True)))
    store.append([new(B), new(C, group=None)])
    assert store.shield(A, fence(1), shielded=False) is Shielded.INTERRUPTED
    state = read(client)
    assert (state.messages[A].state, state.messages[C].state, state.collecting) == ("ready", "waiting", {})


def test_an_interrupted_group_in_a_paused_lane_waits(client: Redis, store: Store) -> None:
    seed(client, state_with(running(), paused=["lane:a"]))
    store.append([new(B)])
    assert read(client).messages[A].state == "waiting"


def test_a_buried_group_is_closed(client: Redis, store: Store) -> None:
    seed(client, state_with(running()))
    store.append([new(B), new(C)])
    assert store.purge("q") == 1
    store.replay(A)
    store.append([new(D)])
    state = read(client)
    assert state.bodies[A] == body_of(A, B, C)
    assert not state.messages[A].is_open
