"""Connections with unawaited commands: every caller receives the replies to its own commands, also after errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from chatlanes.lanes.protocol import pipelined as pipelined_module
from chatlanes.lanes.protocol import pipelined_pool as pool_module
from chatlanes.lanes.protocol.commands import NewMessage, begin_command, end_command
from chatlanes.lanes.protocol.connect import connect
from chatlanes.lanes.protocol.pipelined_pool import Fate, PipelinedCommand, PipelinedPool, UnawaitedCommand
from chatlanes.lanes.protocol.replies import Kind
from chatlanes.lanes.protocol.scripts import script
from chatlanes.lanes.protocol.store import Store
from tests.support.waiting import until

LEASE_MS = 60_000


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


@pytest.fixture
def pool(client: Redis) -> Iterator[PipelinedPool]:
    pool = PipelinedPool(client, script("begin"), script("end"))
    yield pool
    pool.close()


@pytest.fixture
def lease(client: Redis) -> tuple[str, str]:
    store = Store(client)
    store.append([NewMessage("1", "q", "{}", ["a"])])
    [leased] = store.turn(["q"], holder="me", lease_ms=LEASE_MS, room=1).leased
    return leased.id, leased.fence


def begin(lease: tuple[str, str], position: int, what: str = "x") -> PipelinedCommand:
    return PipelinedCommand(
        script("begin"), begin_command(*lease, lease_ms=LEASE_MS, position=str(position), what=what)
    )


def end(lease: tuple[str, str], position: int, outcome: str = "") -> PipelinedCommand:
    command = end_command(*lease, position=str(position), what="x", kind=Kind.DONE, outcome=outcome.encode())
    return PipelinedCommand(script("end"), command)


def connections(client: Redis) -> int:
    return len(client.client_list())


def test_an_unawaited_reply_is_read_with_the_next_command(pool: PipelinedPool, lease: tuple[str, str]) -> None:
    unawaited = [pool.send_unawaited(end(lease, 1)), pool.send_unawaited(end(lease, 2))]
    assert [each.fate for each in unawaited] == [Fate.UNDER_WAY] * 2
    assert pool.ask(begin(lease, 1), begin(lease, 3)) == [[b"done", b""], [b"begun"]]
    assert [each.fate for each in unawaited] == [Fate.DONE] * 2


def test_an_error_reply_does_not_affect_other_replies(
    pool: PipelinedPool, client: Redis, lease: tuple[str, str]
) -> None:
    pool.ask(begin(lease, 1))
    client.script_flush()
    unawaited = pool.send_unawaited(end(lease, 1))
    wrong = PipelinedCommand(script("begin"), ["HGET"])
    replies = pool.ask(wrong, begin(lease, 1))  # loads the script of `begin` again
    assert isinstance(replies[0], ResponseError)
    assert replies[1] == [b"begun"]
    assert unawaited.fate is Fate.UNKNOWN


def test_threads_share_connections(pool: PipelinedPool, client: Redis, lease: tuple[str, str]) -> None:
    before, threads, each = connections(client), 8, 50

    def work(thread: int) -> list[UnawaitedCommand]:
        sent = []
        for call in range(each):
            position = 1 + thread * each + call
            assert pool.ask(begin(lease, position, f"x{position}")) == [[b"begun"]]
            sent.append(pool.send_unawaited(end(lease, position, str(position))))
        return sent

    with ThreadPoolExecutor(threads) as executor:
        unawaited = [command for sent in executor.map(work, range(threads)) for command in sent]
    last = threads * each
    pool.close()
    until(lambda: connections(client) <= before)  # the server notices closed connections after a while
    assert {command.fate for command in unawaited} <= {Fate.DONE, Fate.UNKNOWN}
    assert pool.ask(*(begin(lease, position) for position in range(1, last + 1))) == [
        [b"done", str(position).encode()] for position in range(1, last + 1)
    ]


def test_a_forked_child_does_not_use_its_parents_connections(
    pool: PipelinedPool, client: Redis, redis_url: str, lease: tuple[str, str]
) -> None:
    unawaited = pool.send_unawaited(end(lease, 1))
    child = os.fork()
    if not child:
        try:
            pool._free.clear()  # as the Lanes object of a child does: the connections are closed without a command
            with connect(redis_url) as own:
                has_reply = PipelinedPool(own, script("begin")).ask(begin(lease, 2)) == [[b"begun"]]
            os._exit(0 if has_reply else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.ask(begin(lease, 1)) == [[b"done", b""]]
    assert unawaited.fate is Fate.DONE


def test_an_interrupt_leaves_no_half_read_reply(
    pool: PipelinedPool, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unawaited = pool.send_unawaited(end(lease, 1))
    [connection] = pool._free

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.ask(begin(lease, 2))
    assert unawaited.fate is Fate.UNKNOWN
    assert pool.ask(begin(lease, 3)) == [[b"begun"]]


def test_unread_replies_are_bounded(
    pool: PipelinedPool, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipelined_module, "MOST_UNREAD", 3)
    unawaited = [pool.send_unawaited(end(lease, position)) for position in range(1, 6)]
    assert [each.fate for each in unawaited].count(Fate.UNDER_WAY) <= 3
    [connection] = pool._free
    assert len(connection._unread) <= 3


def test_surplus_connections_are_closed(
    pool: PipelinedPool, client: Redis, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MOST_KEPT", 2)
    taken = [pool._take() for _ in range(5)]
    pool._free.extend(taken[:3])
    before = connections(client)
    pool.ask(begin(lease, 1))
    assert connections(client) == before - 1
    assert len(pool._free) == 2


def test_an_unreachable_server_is_not_waited_for() -> None:
    with connect("redis://127.0.0.1:1/0") as unreachable:
        pool = PipelinedPool(unreachable, script("begin"))
        unawaited = pool.send_unawaited(end(("1", "5"), 1))
        assert unawaited.fate is Fate.UNKNOWN
        with pytest.raises(RedisError):
            pool.ask(begin(("1", "5"), 1))


def test_a_script_load_error_is_raised_unchanged(pool: PipelinedPool) -> None:
    missing = PipelinedCommand(script("begin"), ["EVALSHA", "0" * 40, 0])
    assert isinstance(pool.ask(missing)[0], NoScriptError)
