"""Holds are read from Redis' append-only file, even after the server was killed or rewrote the file."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from celery_lanes.embedded_server import Server, start_server
from celery_lanes.protocol import NewMessage, Store
from chaos.evidence.aof import FOREVER, AofCopy, Book, book_in, book_of, commands_in
from chaos.systems.agents import CONFIRMATION


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "redis", extra=["--aof-timestamp-enabled", "yes"]) as server:
        yield server


def message(number: int) -> NewMessage:
    return NewMessage(id=f"1:{number}", queue="updates.0", stored=b"{}", lanes=["1/chat:7"])


def test_holds_and_take_backs(server: Server, tmp_path: Path) -> None:
    # Given two updates of one lane; the first was handed out, released, handed out again and settled
    aof_copy = AofCopy(tmp_path / "redis", tmp_path / "aof")
    aof_copy.start()
    with Redis(port=server.port) as client:
        store = Store(client)
        store.append([message(1), message(2)])
        [first] = store.turn(["updates.0"], holder="here:11:x", lease_ms=9000, room=1).leased
        store.release([(first.id, first.fence)])
        client.bgrewriteaof()  # the server will remove the files written so far
        [again] = store.turn(["updates.0"], holder="here:22:x", lease_ms=9000, room=1).leased
        settles = [(again.id, again.fence)]
        [second] = store.turn(["updates.0"], holder="here:22:x", lease_ms=9000, room=1, settles=settles).leased
    server.kill()

    aof_copy.end()
    holds = book_in(tmp_path / "aof").holds

    # Then the first hold ended before the second began, and the others were never taken back
    assert list(holds) == [(1, first.fence), (1, again.fence), (2, second.fence)]
    assert [hold.pid for hold in holds.values()] == [11, 22, 22]
    assert int(first.fence) / 1e6 < holds[1, first.fence].until_s < int(again.fence) / 1e6
    assert [hold.until_s for hold in list(holds.values())[1:]] == [FOREVER, FOREVER]


def test_truncated_command_is_ignored() -> None:
    whole = b"*5\r\n$4\r\nHSET\r\n$15\r\nlanes:message:1\r\n$5\r\nstate\r\n$6\r\nleased\r\n$1\r\n\r\r\n"

    for cut in range(len(whole)):
        assert len(list(commands_in(io.BytesIO(whole + whole[:cut])))) == 1


def test_other_keys_and_fields_are_ignored() -> None:
    commands = [
        [b"HSET", b"lanes:message:1:5", b"state", b"waiting"],
        [b"SET", b"lanes:body:1:5", b"x"],
        [b"EXEC"],
    ]

    assert book_of(commands) == Book()


def test_noted_outcomes() -> None:
    commands = [
        [b"HSET", b"lanes:journal:1:5", b"1", b"begun 77 sendMessage:x "],
        [b"HSET", b"lanes:journal:1:5", b"1", b"done 77 sendMessage:x {}"],
        [b"HSET", b"lanes:journal:1:5", b"2", b"begun 77 sendMessage:y ", b"last", b"2"],
        [b"HSET", b"lanes:journal:1:5", b"error1", b"done 77 sendMessage:z {}"],
        [b"HSET", b"lanes:journal:1:5", b"step/pay/1", b"done 77 step:pay {}"],
        [b"HSET", b"lanes:journal:1:5", b"step/pay/2", b"begun 77 step:pay "],
        [b"HSET", b"lanes:journal:1:5", b"stream1:part1:0", b"done 77 sendMessage:stream-keep {}"],
        [b"HSET", b"lanes:journal:1:5", b"stream1:text1", b"done 77 text:stream {}"],
    ]

    assert book_of(commands).noted == {(5, 0, "77"), (5, "step/pay/1", "77"), (5, CONFIRMATION, "77")}


def test_stopped_messages(server: Server, tmp_path: Path) -> None:
    # Given a running message, and one that waits
    aof_copy = AofCopy(tmp_path / "redis", tmp_path / "aof")
    aof_copy.start()
    with Redis(port=server.port) as client:
        store = Store(client)
        store.append([message(1), message(2)])
        [first] = store.turn(["updates.0"], holder="here:11:x", lease_ms=9000, room=1).leased
        # When another one stops the first
        store.append([message(3)._replace(stops=True)])
    server.kill()
    aof_copy.end()
    # Then only that one is stopped, and its hold has ended
    book = book_in(tmp_path / "aof")
    assert book.stopped == {1: int(first.fence)}
    assert book.holds[1, first.fence].until_s < FOREVER
