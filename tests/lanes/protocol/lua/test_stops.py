"""A message with `stops` ends the first message of its lanes, which is handed out once more, to be settled."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from celery_lanes.protocol import Kind, NewMessage, Noted, Outcome, Shielded, Store, keys
from celery_lanes.protocol.messages import append_row
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    CLOCK,
    INTERRUPTING,
    LEASE_MS,
    MessageState,
    buried,
    collecting,
    delayed,
    fence,
    group_field,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B, C = "1:10", "1:11", "1:12"
GROUP = group_field(INTERRUPTING)


def stopping(message_id: str, *lanes: str, **more: Any) -> NewMessage:
    return NewMessage(message_id, "q", f"body of {message_id}", lanes or ["a"], stops=True, **more)


def lease(store: Store) -> list[tuple[str, bool, int]]:
    """Lease the ready messages: the ids, whether each is stopped, and how many of its runs were ended."""
    fetched = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9)
    return [(each.id, each.is_stopped, each.interrupted) for each in fetched.leased]


def test_a_run_is_taken_from_its_worker_and_handed_out_once_more(client: Redis, store: Store) -> None:
    # Given a run, with a message behind it
    seed(client, state_with(leased(A, "a", failed=1), waiting(B, "a")))
    # When a message arrives that stops
    store.append([stopping(C)])
    # Then the run is over, no attempt is counted, and the message is ready before all others
    assert read(client) == state_with(
        ready(A, "a", fence=2, failed=1, interrupted=1, is_stopped=True),
        waiting(B, "a"),
        waiting(C, "a"),
        counts={"appended": 1, "stopped": 1},
    )
    assert lease(store) == [(A, True, 1)]
    # And it is not stopped again
    store.append([stopping("1:13")])
    assert read(client).messages[A] == leased(A, "a", fence=3, failed=1, interrupted=1, is_stopped=True)
    assert client.hget(keys.COUNTS, "stopped") == b"1"


@pytest.mark.parametrize(
    ("first", "after"),
    [
        pytest.param(ready(A, "a"), ready(A, "a", fence=CLOCK, is_stopped=True), id="never ran"),
        pytest.param(ready(A, "a", fence=1, died=1), ready(A, "a", fence=2, died=1, is_stopped=True), id="ready"),
        pytest.param(
            delayed(A, "a"), ready(A, "a", fence=2, failed=1, errors=("E",), is_stopped=True), id="waits for its retry"
        ),
        pytest.param(
            collecting(A, "a", fence=1, is_open=True),
            ready(A, "a", group=None, fence=2, is_stopped=True),
            id="collecting",
        ),
    ],
)
def test_a_message_without_a_run_is_stopped_too(
    client: Redis, store: Store, first: MessageState, after: MessageState
) -> None:
    seed(client, state_with(first))
    store.append([stopping(B)])
    after = MessageState(**{**vars(after), "group": first.group})
    assert read(client) == state_with(after, waiting(B, "a"), counts={"appended": 1, "stopped": 1})
    assert lease(store) == [(A, True, 0)]


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(buried(A, "a"), id="buried"),
        pytest.param(leased(A, "b"), id="of another lane"),
        pytest.param(leased(A, "a", is_unstoppable=True), id="not stoppable"),
        pytest.param(waiting(A, "a"), id="waiting, such as in a paused lane"),
    ],
)
def test_other_messages_are_not_stopped(client: Redis, store: Store, first: MessageState) -> None:
    seed(client, state_with(first, paused=["lane:a"]))
    store.append([stopping(B)])
    state = read(client)
    assert (state.messages[A], state.counts) == (first, {"appended": 1})


def test_the_first_message_of_each_lane_is_stopped(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), leased(B, "b"), leased(C, "c")))
    store.append([stopping("1:13", "a", "b")])
    state = read(client)
    assert [state.messages[each].is_stopped for each in (A, B, C, "1:13")] == [True, True, False, False]


def test_a_message_of_the_same_append_is_stopped(client: Redis, store: Store) -> None:
    store.append([NewMessage(A, "q", f"body of {A}", ["a"]), stopping(B)])
    assert lease(store) == [(A, True, 0)]


def test_a_message_that_was_seen_stops_nothing(client: Redis, store: Store) -> None:
    # Given a message that has stopped a run, and is over
    store.append([stopping(B, once=("1", 11))])
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    store.commit(message.id, message.fence, [])
    # When it is appended again, while another message runs
    store.append([NewMessage(A, "q", "later", ["a"])])
    assert lease(store) == [(A, False, 0)]
    assert store.append([stopping(B, once=("1", 11))]).seen == 1
    # Then that one continues
    assert read(client).messages[A].state == "leased"


def test_a_held_message_stops_at_once(client: Redis, store: Store) -> None:
    store.append([NewMessage(A, "q", "first", ["a"])])
    assert lease(store) == [(A, False, 0)]
    assert store.append([stopping(C, once=("1", 12))], hold_ms=LEASE_MS).held == 1
    assert lease(store) == [(A, True, 1)]


def test_the_holder_is_told(client: Redis, store: Store) -> None:
    with client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(f"{keys.INTERRUPTS}me")
        listener.get_message(timeout=5)
        seed(client, state_with(leased(A, "a")))
        store.append([stopping(B)])
        message = listener.get_message(timeout=5)
    assert message is not None
    assert message["data"].decode() == f"{A}#{fence(1)}"


def test_nothing_joins_a_stopped_group(client: Redis, store: Store) -> None:
    # Given a stopped group that runs, and nothing behind it: the message that stops is held
    seed(client, state_with(leased(A, "a", group=GROUP, body=f"\x1dbody of {A}")))
    assert store.append([stopping(C, once=("1", 12))], hold_ms=LEASE_MS).held == 1
    assert lease(store) == [(A, True, 1)]
    # When a message of the group arrives
    message = NewMessage(B, "q", f"body of {B}", ["a"], group=INTERRUPTING)
    store.append([message])
    # Then it is the next group
    state = read(client)
    assert [(state.messages[each].state, state.messages[each].size) for each in (A, B)] == [
        ("leased", 1),
        ("waiting", 1),
    ]
    # And a shield of the run that ends the first one changes nothing
    held = (client.hget(keys.message(A), "fence") or b"").decode()
    assert store.shield(A, held, shielded=True) is Shielded.DONE
    assert store.shield(A, held, shielded=False) is Shielded.DONE
    assert read(client).messages[A].size == 1


@pytest.mark.parametrize("count", [3, 1_500])
def test_the_calls_of_the_stopped_run_are_kept_unless_they_are_too_many(
    client: Redis, store: Store, count: int
) -> None:
    seed(client, state_with(leased(A, "a")))
    client.hset(keys.journal(A), mapping={f"{number}": f"done {fence(1)} x y" for number in range(1, count + 1)})
    store.append([stopping(B)])
    # The run that ends it can read them, and is not answered from them
    [message] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert len(store.previous_calls(A)) == (count if count == 3 else 0)
    begun = store.begin(A, message.fence, lease_ms=LEASE_MS, position="1", what="x")
    assert begun.noted is Noted.BEGUN
    assert store.end(A, fence(1), position="9", what="x", kind=Kind.DONE) is Outcome.LOST


def test_a_shielded_run_is_stopped_when_the_shield_ends(client: Redis, store: Store) -> None:
    # Given a shielded run
    seed(client, state_with(leased(A, "a", is_shielded=True)))
    # When a message stops it, then it continues
    store.append([stopping(B)])
    assert read(client).messages[A] == leased(A, "a", is_shielded=True, is_stopped=True)
    # Until its shield ends
    assert store.shield(A, fence(1), shielded=False) is Shielded.INTERRUPTED
    assert read(client).messages[A] == ready(A, "a", fence=2, interrupted=1, is_stopped=True)


def test_a_shielded_run_that_fails_is_stopped_by_its_retry(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", is_shielded=True)))
    store.append([stopping(B)])
    assert store.release([(A, fence(1))]) == []
    assert lease(store) == [(A, True, 0)]


def test_a_worker_that_dies_while_it_ends_the_message_leaves_it_stopped(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", is_stopped=True, interrupted=1)))
    assert store.release([(A, fence(1))], died=True) == []
    assert lease(store) == [(A, True, 1)]


def test_a_replayed_message_runs_again(client: Redis, store: Store) -> None:
    seed(client, state_with(buried(A, "a", is_stopped=True)))
    assert store.replay(A)
    assert lease(store) == [(A, False, 0)]


def test_a_malformed_message_stops_nothing(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a")))
    store.append([stopping(B, problem={"type": "Malformed"})])
    assert read(client).messages[A] == leased(A, "a")


def test_a_message_is_stored_as_not_stoppable(client: Redis, store: Store) -> None:
    store.append([NewMessage(A, "q", f"body of {A}", ["a"], stoppable=False)])
    store.append([NewMessage(B, "q", f"body of {B}", ["a"], ("1", 11), stoppable=False)], hold_ms=LEASE_MS)
    store.append([stopping(C)])
    state = read(client)
    assert [state.messages[each].is_unstoppable for each in (A, B, C)] == [True, True, False]
    assert lease(store) == [(A, False, 0)]


def test_the_arguments_and_the_stored_form(client: Redis, store: Store) -> None:
    """Another release reads the stored form: a stopped message differs by the field `stopped`, and by no other."""
    assert append_row(stopping(B)) == (B, "q", f"body of {B}", "", "", "", "", 0, 1, "", "a")
    seed(client, state_with(leased(A, "a")))
    store.append([stopping(B)])
    record = client.hgetall(keys.message(A))
    assert record.pop(b"stopped") == fence(1).encode()
    assert record == {
        b"state": b"ready",
        b"queue": b"q",
        b"lanes": b"a",
        b"seq": b"1",
        b"fence": fence(2).encode(),
        b"interrupted": b"1",
    }
