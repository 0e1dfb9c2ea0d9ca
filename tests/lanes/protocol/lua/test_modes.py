"""Modes: a commit decides what becomes of later messages of a lane that arrive during a run."""

from __future__ import annotations

import pytest
from redis import Redis

from celery_lanes.protocol import Group, Mode, NewMessage, Outcome, SetMode, Store, keys
from celery_lanes.protocol.messages import write_row
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import (
    INTERRUPTING,
    LEASE_MS,
    TALK,
    fence,
    group_field,
    leased,
    seed,
    state_with,
    waiting,
)

A, B, C = "1:10", "1:11", "1:12"

#: mode -> the group with which a message is stored, and the beginning of its body
STORED: dict[Mode, tuple[Group | None, str]] = {
    "queue": (None, ""),
    "collect": (INTERRUPTING._replace(interrupts=False), "\x1e"),
    "interrupt": (INTERRUPTING, "\x1d"),
    "steer": (INTERRUPTING._replace(interrupts=False, steers=True), "\x1e "),
}


def append(store: Store, message_id: str, *lanes: str, group: Group | None = INTERRUPTING, hold_ms: int = 0) -> None:
    once = ("1", int(message_id[2:]))
    store.append([NewMessage(message_id, "q", f"body of {message_id}", lanes, once, group=group)], hold_ms=hold_ms)


def test_a_commit_sets_the_mode_of_a_lane(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", "b"), leased(B)))
    # An empty lane is the first one of the message
    assert store.commit(A, fence(1), [SetMode("steer"), SetMode("queue", "c")]) is Outcome.DONE
    assert store.commit(B, fence(1), [SetMode("steer")]) is Outcome.DONE
    assert client.hgetall("lanes:modes") == {b"a": b"steer", b"c": b"queue"}


def test_a_commit_removes_the_mode_of_a_lane(client: Redis, store: Store) -> None:
    state = state_with(leased(A, "a"))
    state.modes = {"a": "steer", "b": "queue"}
    seed(client, state)
    store.commit(A, fence(1), [SetMode(None)])
    assert read(client).modes == {"b": "queue"}


@pytest.mark.parametrize("mode", STORED)
@pytest.mark.parametrize("hold_ms", [0, LEASE_MS])
def test_a_message_is_stored_in_the_mode_of_its_first_lane(
    client: Redis, store: Store, mode: Mode, hold_ms: int
) -> None:
    # Given a mode of the first lane, and another one of the second
    state = state_with(leased(A, "a"), last={"1": 10})
    state.modes = {"a": mode, "b": "queue"}
    seed(client, state)
    # When a message arrives, which may be held
    append(store, C, "a", "b", hold_ms=hold_ms)
    # Then it is stored as if its publisher had chosen that
    group, beginning = STORED[mode]
    [message] = [each for each in read(client).messages.values() if each.id == C]
    assert message.group == (group and group_field(group))
    assert client.get(keys.body(C)) == f"{beginning}body of {C}".encode()
    # And handed out as that
    store.append([], hold_ms=0)
    append(store, B, "z", group=None)
    store.commit(A, fence(1), [])
    client.delete(keys.COLLECTING)
    store.repair("0", LEASE_MS)
    handed = {each.id: each.stored for each in store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased}
    assert handed[C] == f"{beginning}body of {C}".encode()


def test_a_mode_that_a_newer_release_has_set_changes_nothing(client: Redis, store: Store) -> None:
    state = state_with(leased(A, "a"))
    state.modes = {"a": "of a newer release"}
    seed(client, state)
    append(store, B, "a")
    assert read(client).messages[B].group == group_field(INTERRUPTING)


def test_a_message_without_a_group_has_no_mode(client: Redis, store: Store) -> None:
    state = state_with(leased(A, "a"))
    state.modes = {"a": "steer"}
    seed(client, state)
    append(store, B, "a", group=None)
    assert read(client).messages[B] == waiting(B, "a")


def test_a_message_joins_only_messages_of_its_mode(client: Redis, store: Store) -> None:
    """The run in progress, and the messages behind it, keep theirs."""
    state = state_with(leased(A, "a", group=group_field(TALK), body=f"\x1ebody of {A}"))
    state.modes = {"a": "interrupt"}
    seed(client, state)
    append(store, B, "a", group=TALK)
    append(store, C, "a", group=TALK)
    state = read(client)
    assert state.messages[A].state == "leased"
    assert (state.messages[B].size, C in state.messages) == (2, False)


def test_the_row_and_what_is_not_a_mode() -> None:
    assert write_row(SetMode("steer", "a")) == ("mode", "a", "steer", 0)
    assert write_row(SetMode(None)) == ("mode", "", "", 0)
    with pytest.raises(ValueError, match="is not a mode: use queue, collect, interrupt, steer or None"):
        SetMode("faster")  # type: ignore[arg-type]
