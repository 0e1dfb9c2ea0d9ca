"""The client: every caller receives the replies to its own commands, also after errors, flushes and forks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, UnixDomainSocketConnection
from redis._parsers import _RESP2Parser
from redis.exceptions import NoScriptError, RedisError, ResponseError

from celery_lanes.protocol import (
    Command,
    Fate,
    Kind,
    NewMessage,
    Store,
    UnawaitedCommand,
    connect,
    plain,
    plain_codec,
    script,
    verbs,
)
from celery_lanes.protocol import client as client_module
from celery_lanes.protocol import connection as connection_module
from tests.support.waiting import until

LEASE_MS = 60_000


@pytest.fixture(params=["fast", "plain"])
def client(redis_url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Redis]:
    """Its connections read with hiredis, or as they do where hiredis is not installed."""
    with connect(redis_url) as client:
        if request.param == "plain":
            client.connection_pool.connection_kwargs["parser_class"] = _RESP2Parser
            for name in ("pack_command", "reader_of"):
                monkeypatch.setattr(connection_module, name, getattr(plain_codec, name))
        yield client


@pytest.fixture
def store(client: Redis) -> Iterator[Store]:
    store = Store(client)
    yield store
    store.close()


@pytest.fixture
def lease(client: Redis) -> tuple[str, str]:
    store = Store(client)
    store.append([NewMessage("1", "q", "{}", ["a"])])
    [leased] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=1).leased
    return leased.id, leased.fence


def begin(lease: tuple[str, str], position: int, what: str = "x") -> Command[Any]:
    return verbs.begin(*lease, lease_ms=LEASE_MS, position=str(position), what=what)


def end(lease: tuple[str, str], position: int, outcome: str = "") -> Command[Any]:
    return verbs.end(*lease, position=str(position), what="x", kind=Kind.DONE, outcome=outcome.encode())


def connections(client: Redis) -> int:
    return len(client.client_list())


def test_an_unawaited_reply_is_read_with_the_next_command(store: Store, lease: tuple[str, str]) -> None:
    unawaited = [store.send_unawaited(end(lease, 1)), store.send_unawaited(end(lease, 2))]
    assert [each.fate for each in unawaited] == [Fate.UNDER_WAY] * 2
    assert store.ask(begin(lease, 1), begin(lease, 3)) == [[b"done", b""], [b"begun"]]
    assert [each.fate for each in unawaited] == [Fate.DONE] * 2


def test_an_error_reply_does_not_affect_other_replies(store: Store, client: Redis, lease: tuple[str, str]) -> None:
    store.ask(begin(lease, 1), end(lease, 2))
    store.send_unawaited(end(lease, 2))
    client.script_flush()
    unawaited = store.send_unawaited(end(lease, 1))
    wrong = Command(script("begin"), ["HGET"])
    replies = store.ask(wrong, begin(lease, 1))  # loads the script of `begin` again
    assert isinstance(replies[0], ResponseError)
    assert replies[1] == [b"begun"]
    assert unawaited.fate is Fate.UNKNOWN


def test_threads_share_connections(store: Store, client: Redis, lease: tuple[str, str]) -> None:
    before, threads, each = connections(client), 8, 50

    def work(thread: int) -> list[UnawaitedCommand]:
        sent = []
        for call in range(each):
            position = 1 + thread * each + call
            assert store.ask(begin(lease, position, f"x{position}")) == [[b"begun"]]
            sent.append(store.send_unawaited(end(lease, position, str(position))))
        return sent

    with ThreadPoolExecutor(threads) as executor:
        unawaited = [command for sent in executor.map(work, range(threads)) for command in sent]
    last = threads * each
    store.close()
    until(lambda: connections(client) <= before)  # the server notices closed connections after a while
    assert {command.fate for command in unawaited} <= {Fate.DONE, Fate.UNKNOWN}
    assert store.ask(*(begin(lease, position) for position in range(1, last + 1))) == [
        [b"done", str(position).encode()] for position in range(1, last + 1)
    ]


def test_a_forked_child_does_not_use_its_parents_connections(store: Store, lease: tuple[str, str]) -> None:
    unawaited = store.send_unawaited(end(lease, 1))
    child = os.fork()
    if not child:
        try:
            os._exit(0 if store.ask(begin(lease, 2)) == [[b"begun"]] else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert store.ask(begin(lease, 1)) == [[b"done", b""]]
    assert unawaited.fate is Fate.DONE


def test_a_connection_that_the_server_has_closed_is_not_used(
    store: Store, client: Redis, lease: tuple[str, str]
) -> None:
    assert store.holds(*lease)
    client.client_kill_filter(_type="normal", skipme=True)
    assert store.renew([lease], LEASE_MS) == []


def test_commands_that_belong_together_are_all_sent_again(store: Store, client: Redis, lease: tuple[str, str]) -> None:
    client.script_flush()
    write, count = verbs.begin(*lease, lease_ms=LEASE_MS, position="1", what="x"), plain("INCR", "sent")
    assert store.ask(write, count, together=True) == [[b"begun"], 2]
    client.script_flush()
    assert store.ask(write, count) == [[b"begun"], 3]


def test_an_interrupt_leaves_no_half_read_reply(
    store: Store, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unawaited = store.send_unawaited(end(lease, 1))
    [connection] = store._idle

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.ask(begin(lease, 2))
    assert unawaited.fate is Fate.UNKNOWN
    assert store.ask(begin(lease, 3)) == [[b"begun"]]


def test_unread_replies_are_bounded(store: Store, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "MOST_UNREAD", 3)
    unawaited = [store.send_unawaited(end(lease, position)) for position in range(1, 6)]
    assert [each.fate for each in unawaited].count(Fate.UNDER_WAY) <= 3
    [connection] = store._idle
    assert len(connection._unread) <= 3


def test_surplus_connections_are_closed(store: Store, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MOST_KEPT", 2)
    taken = [store._take() for _ in range(5)]
    store._idle.extend(taken[:3])
    store.ask(begin(lease, 1))
    assert [each._connection._sock is None for each in taken[:3]].count(True) == 1
    assert len(store._idle) == 2


def test_an_unreachable_server_is_not_waited_for() -> None:
    with connect("redis://127.0.0.1:1/0") as unreachable:
        store = Store(unreachable)
        unawaited = store.send_unawaited(end(("1", "5"), 1))
        assert unawaited.fate is Fate.UNKNOWN
        with pytest.raises(RedisError):
            store.ask(begin(("1", "5"), 1))


def test_a_script_load_error_is_raised_unchanged(store: Store) -> None:
    missing = Command(script("begin"), ["EVALSHA", "0" * 40, 0])
    assert isinstance(store.ask(missing)[0], NoScriptError)


@pytest.mark.parametrize(
    ("query", "database"), [("", 0), ("?virtual_host=2", 2), ("?virtual_host=/2", 2), ("?health_check_interval=9", 0)]
)
def test_a_unix_socket_has_the_database_that_celery_uses(query: str, database: int, tmp_path: Path) -> None:
    url = f"redis+socket://{tmp_path}/redis.sock{query}"
    with connect(url) as client:
        assert client.connection_pool.connection_class is UnixDomainSocketConnection
        assert client.connection_pool.connection_kwargs["path"] == f"{tmp_path}/redis.sock"
        assert client.connection_pool.connection_kwargs.get("db", 0) == database


@pytest.mark.parametrize("url", ["redis://127.0.0.1/abc", "rediss://127.0.0.1/1/2", "sentinel://127.0.0.1/abc"])
def test_a_database_that_is_not_a_number_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"'(abc|1/2)' is not a database of Redis: use a number"):
        connect(url, master="main")
