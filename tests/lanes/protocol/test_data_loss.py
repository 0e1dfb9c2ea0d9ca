"""Each process remembers the highest state of a database that it has seen, and reports a lower one as a loss."""

from __future__ import annotations

import logging

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from celery_lanes.monitoring import inspection
from celery_lanes.protocol import Group, Loss, NewMessage, Store, Witness, keys, witness_of
from celery_lanes.protocol.data_loss import sentence
from celery_lanes.protocol.verbs import History

LEASE_MS = 60_000


def append(store: Store, witness: Witness, *ids: str) -> None:
    known = witness.known
    witness.appended(store, known, store.append([NewMessage(id_, "q", "x", [id_]) for id_ in ids]))


def settle(store: Store, room: int) -> None:
    leased = store.turn(["q"], holder="h", lease_ms=LEASE_MS, room=room).leased
    store.turn(["q"], holder="h", lease_ms=LEASE_MS, room=0, settles=[(each.id, each.fence) for each in leased])


def go_back(client: Redis, appended: int, settled: int) -> None:
    """Set older totals, like those of a lagging replica."""
    client.hset(keys.COUNTS, mapping={"appended": appended, "settled": settled})


def only(client: Redis) -> Loss:
    [loss] = inspection.losses(client)
    return loss


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="celery_lanes.protocol.data_loss")
    return caplog


def test_pending_is_computed_from_the_totals(store: Store) -> None:
    store.append([NewMessage(str(n), "q", "x", [str(n)], problem={"type": "E"} if n == 1 else None) for n in range(5)])
    settle(store, 2)
    assert store.replay("1")
    assert store.look() == History(store.look().identity, 5, 2, store.pending())


def test_a_new_database_is_not_a_loss(store: Store, warnings: pytest.LogCaptureFixture) -> None:
    first, second = Witness(), Witness()
    first.look(store)
    append(store, second, "1")
    append(store, first, "2")
    for witness in (first, second):
        witness.look(store)
    # A database of an older version, which has no identity, gets one without a report
    store.client.delete(keys.IDENTITY)
    Witness().look(store)
    assert store.client.exists(keys.IDENTITY)
    assert inspection.losses(store.client) == []
    assert warnings.records == []


def test_an_emptied_database_is_one_loss_of_several_processes(store: Store, warnings: pytest.LogCaptureFixture) -> None:
    # Given processes that have seen more and less
    less, more = Witness(), Witness()
    append(store, less, "1", "2")
    append(store, more, "3", "4", "5")
    settle(store, 1)
    more.look(store)
    # When the database is emptied, and a new process uses it first
    store.client.flushall()
    append(store, Witness(), "6")
    assert inspection.losses(store.client) == []
    # Then both report the same loss, with the higher state of the two
    less.look(store)
    assert only(store.client)[1:] == (1, 2, 2, 0, False)
    more.look(store)
    assert only(store.client)[1:] == (1, 5, 4, 0, False)
    # And each reports it once
    for witness in (less, more):
        witness.look(store)
        assert witness.noticed_within(60)
    assert [record.levelname for record in warnings.records] == ["CRITICAL", "CRITICAL"]
    assert "the database is empty or another one: messages 1 to 5 of all" in warnings.messages[1]


def test_an_older_state_gets_a_new_identity(store: Store, warnings: pytest.LogCaptureFixture) -> None:
    first, second = Witness(), Witness()
    append(store, first, *map(str, range(10)))
    settle(store, 6)
    for witness in (first, second):
        witness.look(store)
    identity = store.look().identity
    go_back(store.client, appended=8, settled=2)
    # The next append notices it
    append(store, first, "new")
    assert store.look().identity != identity
    assert only(store.client)[1:] == (9, 10, 4, 2, False)
    # And other processes notice it by the identity, even if the totals are higher again
    go_back(store.client, appended=20, settled=20)
    second.look(store)
    assert only(store.client)[1:] == (9, 10, 4, 2, False)
    assert "the database went back to an older state: messages 9 to 10 of all" in warnings.messages[1]
    assert "2 finished messages may be pending again" in warnings.messages[1]


def test_messages_that_joined_a_group_are_not_a_loss(store: Store) -> None:
    # Given messages of which all but the first have no record
    witness, group = Witness(), Group("talk", 60_000, 60_000, 20, interrupts=False)
    witness.look(store)
    for ids in (["1", "2", "3"], ["4", "5"]):
        appended = store.append([NewMessage(id_, "q", "\x1ex", ["lane"], group=group) for id_ in ids])
        witness.appended(store, witness.known, appended)
    # When the totals are compared
    witness.look(store)
    # Then nothing is missing
    assert inspection.losses(store.client) == []
    assert witness.known == store.look()


def test_only_settlements_may_be_lost(store: Store) -> None:
    witness = Witness()
    append(store, witness, "1", "2")
    settle(store, 2)
    witness.look(store)
    go_back(store.client, appended=2, settled=1)
    witness.look(store)
    # Then the report claims nothing about messages that are gone
    text = sentence(only(store.client))
    assert "no message is known to be gone; 1 finished message may be pending again, and run again (" in text
    assert "published" not in text


def test_no_more_were_pending_than_are_gone(store: Store) -> None:
    # Given five messages that are pending
    witness = Witness()
    append(store, witness, "1", "2", "3", "4", "5")
    # When an older state has the first three
    go_back(store.client, appended=3, settled=0)
    witness.look(store)
    # Then at most the two that it does not have are lost
    assert "messages 4 to 5 of all that were appended are gone; at most 2 of them were pending" in sentence(
        only(store.client)
    )


def test_an_acknowledged_loss_is_not_reported_again(store: Store, warnings: pytest.LogCaptureFixture) -> None:
    early, late = Witness(), Witness()
    append(store, early, "1")
    late.look(store)
    store.client.flushall()
    early.look(store)
    assert [loss[1:3] for loss in store.acknowledge_losses()] == [(1, 1)]
    assert store.acknowledge_losses() == []
    late.look(store)
    assert inspection.losses(store.client) == []
    assert [record.levelname for record in warnings.records] == ["CRITICAL", "WARNING"]
    # A second loss is reported separately
    append(store, early, "2")
    go_back(store.client, appended=0, settled=0)
    early.look(store)
    assert len(inspection.losses(store.client)) == 1


def test_replies_out_of_order_are_not_a_loss(store: Store) -> None:
    # Given two threads of a process; the first one to ask receives its reply last
    witness = Witness()
    append(store, witness, "1")
    known, found = witness.known, store.look()
    append(store, witness, "2")
    witness.compare(store, known, found)
    assert inspection.losses(store.client) == []
    assert witness.known is not None
    assert witness.known.appended == 2


def test_a_failed_report_is_repeated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    witness = Witness()
    append(store, witness, "1")
    store.client.flushall()
    with monkeypatch.context() as broken:
        broken.setattr(store, "lose", _raise_connection_error)
        witness.look(store)
    assert inspection.losses(store.client) == []
    witness.look(store)
    assert only(store.client)[1:3] == (1, 1)


def _raise_connection_error(*_: History) -> None:
    raise RedisConnectionError


def test_bots_of_a_process_share_one_witness() -> None:
    shared = witness_of("redis://a/0")
    assert witness_of("redis://a/0") is shared
    assert witness_of("redis://b/0") is not shared
