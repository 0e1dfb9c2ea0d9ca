"""Connections on which some commands are not waited for: whoever asks gets his own answers, whatever happens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

from chatlanes.lanes.protocol import pipelined as wire_module
from chatlanes.lanes.protocol import pipelined_pool as module
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
def wires(client: Redis) -> Iterator[PipelinedPool]:
    wires = PipelinedPool(client, script("begin"), script("end"))
    yield wires
    wires.close()


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


def test_an_unawaited_reply_is_read_with_the_next_command(wires: PipelinedPool, lease: tuple[str, str]) -> None:
    told = [wires.tell(end(lease, 1)), wires.tell(end(lease, 2))]
    assert [each.fate for each in told] == [Fate.UNDER_WAY] * 2
    assert wires.ask(begin(lease, 1), begin(lease, 3)) == [[b"done", b""], [b"begun"]]
    assert [each.fate for each in told] == [Fate.DONE] * 2


def test_an_error_is_an_answer_and_others_are_read_all_the_same(
    wires: PipelinedPool, client: Redis, lease: tuple[str, str]
) -> None:
    wires.ask(begin(lease, 1))
    client.script_flush()
    told = wires.tell(end(lease, 1))
    wrong = PipelinedCommand(script("begin"), ["HGET"])
    answers = wires.ask(wrong, begin(lease, 1))  # which is loaded again
    assert isinstance(answers[0], ResponseError)
    assert answers[1] == [b"begun"]
    assert told.fate is Fate.UNKNOWN


def test_threads_share_as_many_connections_as_they_need_at_once(
    wires: PipelinedPool, client: Redis, lease: tuple[str, str]
) -> None:
    before, threads, each = connections(client), 8, 50

    def work(thread: int) -> list[UnawaitedCommand]:
        told = []
        for call in range(each):
            place = 1 + thread * each + call
            assert wires.ask(begin(lease, place, f"x{place}")) == [[b"begun"]]
            told.append(wires.tell(end(lease, place, str(place))))
        return told

    with ThreadPoolExecutor(threads) as pool:
        told = [each for found in pool.map(work, range(threads)) for each in found]
    last = threads * each
    wires.close()
    until(lambda: connections(client) <= before)  # it notices in its own time
    assert {told.fate for told in told} <= {Fate.DONE, Fate.UNKNOWN}
    assert wires.ask(*(begin(lease, place) for place in range(1, last + 1))) == [
        [b"done", str(place).encode()] for place in range(1, last + 1)
    ]


def test_a_forked_child_leaves_its_parents_connections_alone(
    wires: PipelinedPool, client: Redis, redis_url: str, lease: tuple[str, str]
) -> None:
    told = wires.tell(end(lease, 1))
    child = os.fork()
    if not child:
        try:
            wires._free.clear()  # as the child's own Lanes would: they are forgotten, and closed unasked
            with connect(redis_url) as own:
                answered = PipelinedPool(own, script("begin")).ask(begin(lease, 2)) == [[b"begun"]]
            os._exit(0 if answered else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert wires.ask(begin(lease, 1)) == [[b"done", b""]]
    assert told.fate is Fate.DONE


def test_an_interrupt_leaves_no_half_read_reply(
    wires: PipelinedPool, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = wires.tell(end(lease, 1))
    [wire] = wires._free

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(wire, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            wires.ask(begin(lease, 2))
    assert told.fate is Fate.UNKNOWN
    assert wires.ask(begin(lease, 3)) == [[b"begun"]]


def test_answers_do_not_pile_up(wires: PipelinedPool, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "MOST_UNREAD", 3)
    told = [wires.tell(end(lease, place)) for place in range(1, 6)]
    assert [each.fate for each in told].count(Fate.UNDER_WAY) <= 3
    [wire] = wires._free
    assert len(wire._unread) <= 3


def test_connections_that_only_a_rush_needed_are_closed(
    wires: PipelinedPool, client: Redis, lease: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_KEPT", 2)
    rush = [wires._take() for _ in range(5)]
    wires._free.extend(rush[:3])
    before = connections(client)
    wires.ask(begin(lease, 1))
    assert connections(client) == before - 1
    assert len(wires._free) == 2


def test_a_missing_server_is_not_waited_for() -> None:
    with connect("redis://127.0.0.1:1/0") as away:
        wires = PipelinedPool(away, script("begin"))
        told = wires.tell(end(("1", "5"), 1))
        assert told.fate is Fate.UNKNOWN
        with pytest.raises(RedisError):
            wires.ask(begin(("1", "5"), 1))


def test_a_script_load_error_is_raised_unchanged(wires: PipelinedPool) -> None:
    missing = PipelinedCommand(script("begin"), ["EVALSHA", "0" * 40, 0])
    assert isinstance(wires.ask(missing)[0], NoScriptError)
