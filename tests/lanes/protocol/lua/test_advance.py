"""advance: the occurrences of a schedule are recorded and appended in one step, by the first process that calls it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from celery_lanes.protocol import NewMessage, Store
from tests.lanes.protocol.lua.model.reading import read
from tests.lanes.protocol.lua.model.state import State, leased, ready, seed, state_with, waiting

A, B, C = "1:10", "1:11", "1:12"
DIGEST = "1/schedules\ndigest"
HOUR_MS = 3_600_000


def new(message_id: str) -> NewMessage:
    return NewMessage(message_id, "q", f"body of {message_id}", ["a"])


def with_record(state: State, record: str | None) -> State:
    return replace(state, schedules={} if record is None else {DIGEST: record})


def now_ms(store: Store) -> int:
    return store.schedules()[0]


def test_occurrences_join_the_end_of_their_lane_in_order(client: Redis, store: Store) -> None:
    # Given a schedule whose last firing still runs
    seed(client, with_record(state_with(leased(C, "a")), "r1"))
    # When its next two occurrences are fired
    assert store.advance(
        "1/schedules", "digest", known=b"r1", record=b"r2", until_ms=now_ms(store), messages=[new(A), new(B)]
    )
    # Then they wait behind it
    assert read(client) == with_record(
        state_with(leased(C, "a"), waiting(A, "a"), waiting(B, "a"), counts={"appended": 2}), "r2"
    )


def test_only_the_first_process_fires(client: Redis, store: Store) -> None:
    # Given two processes that have read the same record
    now = now_ms(store)
    first, second = (
        store.advance("1/schedules", "digest", known=b"", record=record, until_ms=now, messages=[new(each)])
        for record, each in ((b"r1", A), (b"r2", B))
    )
    # Then the second one changes nothing
    assert (first, second) == (True, False)
    assert read(client) == with_record(state_with(ready(A, "a"), counts={"appended": 1}), "r1")


def test_an_occurrence_to_come_is_refused(client: Redis, store: Store) -> None:
    # When the clock of a worker is an hour fast
    later = now_ms(store) + HOUR_MS
    # Then it fires nothing
    assert not store.advance("1/schedules", "digest", known=b"", record=b"r", until_ms=later, messages=[new(A)])
    assert read(client) == with_record(state_with(), None)


def test_a_message_that_exists_is_not_appended_again(client: Redis, store: Store) -> None:
    given = ready(A, "a")
    seed(client, with_record(state_with(given), "r1"))
    assert store.advance("1/schedules", "digest", known=b"r1", record=b"r2", messages=[new(A)])
    assert read(client) == with_record(state_with(given), "r2")


@pytest.mark.parametrize("record", [b"", b"r2"])
def test_a_record_is_replaced_or_removed_without_messages(client: Redis, store: Store, record: bytes) -> None:
    seed(client, with_record(state_with(), "r1"))
    assert store.advance("1/schedules", "digest", known=b"r1", record=record)
    assert read(client).schedules == ({DIGEST: "r2"} if record else {})
    assert store.schedules()[1] == ({("1/schedules", "digest"): b"r2"} if record else {})
