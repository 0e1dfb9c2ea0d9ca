"""Groups: messages join the group that is last in all their lanes, until it is due, full, or leased."""

from __future__ import annotations

from typing import Any

import pytest
from redis import Redis

from celery_lanes.protocol import Group, NewMessage, Store, keys
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    GROUP,
    LEASE_MS,
    MINUTE_MS,
    QUIET_MINUTES,
    TALK,
    buried,
    collecting,
    group_field,
    leased,
    ready,
    seed,
    state_with,
    waiting,
)

A, B, C, D = "1:10", "1:11", "1:12", "1:13"
OTHER = TALK._replace(name="other")


def new(message_id: str, *lanes: str, group: Group | None = TALK, **more: Any) -> NewMessage:
    return NewMessage(message_id, "q", f"body of {message_id}", lanes, group=group, **more)


def body_of(*ids: str) -> str:
    return "".join(f"\x1ebody of {each}" for each in ids)


def turn(store: Store) -> Any:
    return store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9)


def test_a_fetch_returns_when_the_next_next_is_due(client: Redis, store: Store) -> None:
    # Given a group of two messages, which is first in its lane
    store.append([new(A, "a"), new(B, "a")])
    assert client.llen(keys.bell("q")) == 1
    # When a worker fetches
    fetched = turn(store)
    # Then it gets nothing, and learns when to fetch again
    assert (fetched.leased, fetched.more) == ([], False)
    assert QUIET_MINUTES * 60 - 60 < (fetched.due_s or 0) <= QUIET_MINUTES * 60
    assert read(client) == state_with(
        collecting(A, "a", size=2, body=body_of(A, B)), bells=[], counts={"appended": 1, "collected": 1}
    )


@pytest.mark.parametrize("verb", ["turn", "sweep"])
def test_a_group_that_is_due_is_handed_out_whole(client: Redis, store: Store, verb: str) -> None:
    # Given a group that is due now
    seed(client, state_with(collecting(A, "a", size=2, body=body_of(A, B), due=-1)))
    # When a worker fetches or sweeps
    if verb == "sweep":
        store.sweep(LEASE_MS)
        assert read(client).messages[A].state == "ready"
    # Then it is leased with all its messages
    [message] = turn(store).leased
    assert message.stored == body_of(A, B).encode()
    assert turn(store).due_s is None
    assert not client.exists(keys.COLLECTING)


@pytest.mark.parametrize(
    ("lanes", "group"),
    [
        pytest.param(["a"], None, id="no group"),
        pytest.param(["a"], OTHER, id="another group"),
        pytest.param(["a", "b"], TALK, id="more lanes"),
        pytest.param(["a"], TALK._replace(quiet_ms=1), id="other limits"),
    ],
)
def test_a_message_that_does_not_belong_makes_the_group_due(
    client: Redis, store: Store, lanes: list[str], group: Group | None
) -> None:
    # Given a group that waits for further messages
    seed(client, state_with(collecting(A, "a")))
    # When a message is appended behind it that does not join
    store.append([new(B, *lanes, group=group)])
    # Then it is ready, and the new one waits behind it
    state = read(client)
    assert (state.messages[A].state, state.messages[B].state) == ("ready", "waiting")
    assert state.ready == {"q": [A]}
    assert A not in state.collecting


def test_a_replayed_message_makes_a_group_due(client: Redis, store: Store) -> None:
    seed(client, state_with(buried(B, "a"), collecting(A, "a")))
    store.replay(B)
    assert read(client).messages[A].state == "ready"


def test_a_message_of_one_of_two_lanes_makes_the_group_due(client: Redis, store: Store) -> None:
    seed(client, state_with(collecting(A, "a", "b")))
    store.append([new(B, "b", group=None)])
    assert read(client).messages[A].state == "ready"


def test_a_full_next_is_due(client: Redis, store: Store) -> None:
    store.append([new(A, "a"), new(B, "a"), new(C, "a"), new(D, "a")])
    state = read(client)
    assert (state.messages[A].state, state.messages[A].size) == ("ready", 3)
    assert state.messages[D].state == "waiting"
    assert state.bodies == {A: body_of(A, B, C), D: body_of(D)}


def test_a_group_waits_no_longer_than_its_limit(client: Redis, store: Store) -> None:
    # Given a group that began long ago (its place in the lane is the time of its append)
    short = TALK._replace(max_wait_ms=60_000)
    seed(client, state_with(collecting(A, "a", group=group_field(short))))
    # When a message joins
    store.append([new(B, "a", group=short)])
    # Then it is ready
    assert read(client).messages[A].state == "ready"


def test_messages_join_a_group_that_is_ready_and_do_not_extend_its_time(client: Redis, store: Store) -> None:
    seed(client, state_with(ready(A, "a", group=GROUP, body=body_of(A))))
    store.append([new(B, "a")])
    assert read(client) == state_with(ready(A, "a", group=GROUP, size=2, body=body_of(A, B)), counts={"collected": 1})


@pytest.mark.parametrize("first", [leased(A, "a", group=GROUP), ready(A, "a", group=GROUP, fence=1)])
def test_a_group_that_was_leased_gets_no_more_messages(client: Redis, store: Store, first: Any) -> None:
    # Given a group that is running, or was released
    seed(client, state_with(first))
    # When two more messages of the group arrive
    store.append([new(B, "a"), new(C, "a")])
    # Then they are the next group, and the first one is handed out as it was
    state = read(client)
    assert state.bodies == {A: f"body of {A}", B: body_of(B, C)}
    assert (state.messages[B].state, state.collecting) == ("waiting", {B: QUIET_MINUTES})


def test_a_group_whose_predecessor_ends_is_collected_until_it_is_due(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a", group=GROUP, due=5), waiting(C, "a")))
    store.commit(A, read_fence(client, A))
    assert read(client).messages[B].state == "collecting"


def test_a_group_whose_time_ended_while_it_waited_is_ready_at_once(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a"), waiting(B, "a", group=GROUP, due=-1)))
    store.commit(A, read_fence(client, A))
    state = read(client)
    assert (state.messages[B].state, state.collecting) == ("ready", {})


def test_a_group_in_a_paused_lane_waits(client: Redis, store: Store) -> None:
    # Given a group that waits for further messages
    seed(client, state_with(collecting(A, "a")))
    # When its lane is paused until it is due
    store.pause("lane", "a")
    assert read(client).messages[A].state == "waiting"
    store.resume("lane", "a")
    assert read(client).messages[A].state == "collecting"
    store.pause("lane", "a")
    client.zadd(keys.COLLECTING, {A: 1})
    # Then it is handed out after the pause
    assert turn(store).leased == []
    store.resume("lane", "a")
    assert [message.id for message in turn(store).leased] == [A]


def test_held_messages_join_their_group_in_order(client: Redis, store: Store) -> None:
    # Given messages 10 and 12, the second of which is held
    first, last, between = (new(each, "a", once=("1", int(each[2:]))) for each in (A, C, B))
    store.append([first])
    assert store.append([last], hold_ms=LEASE_MS).held == 1
    # When 11 arrives
    store.append([between], hold_ms=LEASE_MS)
    # Then the group has all of them in order, and nothing is left of the held one
    state = read(client)
    assert state.bodies == {A: body_of(A, B, C)}
    assert state.pending == {"q": [A]}
    assert state.counts == {"appended": 2, "settled": 1, "collected": 2, "held": 1}
    assert store.look().pending == store.pending() == 1


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(new(A), id="no lanes"),
        pytest.param(NewMessage(A, "q", "with \x1d", ["a"], group=TALK), id="a separator in its stored form"),
    ],
)
def test_some_messages_have_no_group(client: Redis, store: Store, message: NewMessage) -> None:
    store.append([message])
    assert (read(client).messages[A].state, read(client).messages[A].group) == ("ready", None)


def test_a_dead_letter_has_no_group(client: Redis, store: Store) -> None:
    store.append([new(A, "a", problem={"type": "E"}), new(B, "a")])
    assert read(client).bodies == {A: f"body of {A}", B: body_of(B)}


def test_a_lost_time_is_repaired(client: Redis, store: Store) -> None:
    seed(client, state_with(collecting(A, "a")))
    client.delete(keys.COLLECTING)
    assert store.repair("0", LEASE_MS)[1] == 1
    assert [message.id for message in turn(store).leased] == [A]


def test_a_held_message_that_joins_a_repaired_group_begins_its_quiet_time(client: Redis, store: Store) -> None:
    # Given a message that waits for the number 11, and a group of its lane whose time was lost and is repaired
    store.append([new(A, "a", once=("1", 10))])
    store.append([new(C, "a", once=("1", 12))], hold_ms=MINUTE_MS)
    client.delete(keys.COLLECTING)
    assert store.repair("0", LEASE_MS)[1] == 1
    # When a sweep finds both due: the hold, and the group
    client.zadd(keys.HELD, {C: 1})
    store.sweep(LEASE_MS)
    # Then the message has joined, and the group waits for others again
    assert turn(store).leased == []
    assert read(client).messages[A].state == "collecting"
    assert read(client).bodies == {A: body_of(A, C)}


def test_a_queue_without_groups_needs_no_further_commands(client: Redis, store: Store) -> None:
    """Nor does one without timers and rates. The only addition are further keys of an EXISTS."""
    commands = commands_of(client, lambda: (store.append([new(A, "a", group=None)]), turn(store)))
    special = [keys.PAUSED, keys.COLLECTING, keys.TIMERS, keys.SUCCESSORS, keys.NOTES, keys.MODES]
    special += [keys.PACES, keys.HELD]
    assert [each for each in commands if {*special} & {*each}] == [["EXISTS", *special]] * 2


def read_fence(client: Redis, message_id: str) -> str:
    return client.hget(keys.message(message_id), "fence").decode()  # type: ignore[union-attr]


def commands_of(client: Redis, step: Any) -> list[list[str]]:
    """The commands that scripts send while `step` runs."""
    with client.monitor() as monitor:
        step()
        client.ping()
        found: list[list[str]] = []
        for entry in monitor.listen():
            if entry["command"] == "PING":
                return found
            if entry["client_type"] == "lua":
                found.append(entry["command"].split())
    raise AssertionError
