"""Notes: a commit leaves a text for the runs of the messages that are behind it in a lane."""

from __future__ import annotations

import pytest
from redis import Redis

from celery_lanes.protocol import Outcome, SetNote, Store
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import LEASE_MS, fence, leased, ready, seed, state_with, waiting

A, B, C = "1:10", "1:11", "1:12"


def notes(store: Store) -> dict[str, str]:
    """The notes with which a turn hands out."""
    turned = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9)
    assert all(message.is_first == (message.died == 0) for message in turned.leased)
    return {message.id: message.note for message in turned.leased}


def test_a_commit_leaves_a_note_for_the_messages_behind_it(client: Redis, store: Store) -> None:
    # Given a message that is first in two lanes, and one behind it in each
    seed(client, state_with(leased(A, "a", "b"), waiting(B, "a", "b"), waiting(C, "b", "a", died=1, fence=3)))
    # When it is committed with a note of each lane
    writes = [SetNote("a", "is it ready? ä"), SetNote("b", "another")]
    assert store.commit(A, fence(1), writes) is Outcome.DONE
    assert read(client).notes == {"a": "is it ready? ä", "b": "another"}
    # Then the next one is handed out with that of its first lane, and again after its worker died
    [first] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert (first.id, first.note) == (B, "is it ready? ä")
    assert store.release([(B, first.fence)], died=True) == []
    [second] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=9).leased
    assert (second.id, second.note, second.died) == (B, "is it ready? ä", 1)
    # And a commit deletes it
    assert store.commit(B, second.fence, [SetNote("a", None)]) is Outcome.DONE
    assert notes(store) == {C: "another"}
    assert read(client).notes == {"b": "another"}


def test_a_message_without_lanes_has_no_note(client: Redis, store: Store) -> None:
    state = state_with(ready(A), ready(B, "a"))
    state.notes = {"b": "of another lane"}
    seed(client, state)
    assert notes(store) == {A: "", B: ""}


def test_a_commit_that_is_refused_leaves_no_note(client: Redis, store: Store) -> None:
    seed(client, state_with(leased(A, "a", fence=5)))
    assert store.commit(A, fence(4), [SetNote("a", "late")]) is Outcome.LOST
    assert read(client).notes == {}


@pytest.mark.parametrize("text", ["", "a\nb", "x" * 257])
def test_what_is_not_a_note_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a note"):
        SetNote("a", text)
