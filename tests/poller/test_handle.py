"""`chatlanes.run`: a poller inside a program, with Telegram or a custom source, and with lanes or a sink."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import get_ident
from typing import Any

import pytest

from celery_lanes.embedded_server import Server
from celery_lanes.protocol import connect
from chatlanes.poller.bot_api import TokenRefusedError
from chatlanes.poller.handle import run
from chatlanes.poller.leader_election import LEADER
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.imports import ImportPathError
from chatlanes_sandbox.simulator import Simulator
from tests.poller.lanes import drain, lane, writes_held_up
from tests.support.bot_api import BOT_ID, TOKEN, message
from tests.support.waiting import WITHIN_S, until


@pytest.fixture
def settings(simulator: Simulator, redis_url: str) -> Settings:
    return settings_of(simulator, redis_url)


def settings_of(simulator: Simulator, redis_url: str, **more: str) -> Settings:
    env = {"BOT_TOKEN": TOKEN, "BOT_API_URL": simulator.url, "REDIS_URL": redis_url, **more}
    return load(env, env_file=None)


def update(update_id: int, chat: int = 7) -> dict[str, Any]:
    return {"update_id": update_id, "message": {"chat": {"id": chat}, "from": {"id": chat}, "text": "hello"}}


class BatchSource:
    """Yields batches of updates; records which were reported as durable, and whether it was closed."""

    def __init__(self, *batches: list[dict[str, Any]]) -> None:
        self.batches = batches
        self.durable: list[int] = []
        self.is_closed = False
        self.threads: set[int] = set()

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        try:
            for number, batch in enumerate(self.batches):
                self.threads.add(get_ident())
                yield batch
                self.durable.append(number)
        finally:
            self.threads.add(get_ident())
            self.is_closed = True


def endless() -> Iterator[list[dict[str, Any]]]:
    number = 0
    while True:
        yield [update(number)]
        number += 1


# -- Telegram into the lanes


def test_poller_can_be_stopped_and_started_again(settings: Settings, simulator: Simulator, redis_url: str) -> None:
    # Given a poller in this process that has appended two updates
    pushed = simulator.push(message(), message())
    handle = run(settings)
    until(lambda: lane(redis_url) == pushed)
    assert (handle.is_running, handle.size) == (True, 2)
    # When it is stopped
    handle.stop()
    # Then they are confirmed, the task has ended without an error, and the lead is free
    assert simulator.stats()["confirmed"] == 2
    assert (handle.is_running, handle.task.result(0)) == (False, None)
    with connect(redis_url) as client:
        assert not client.exists(LEADER % BOT_ID)
    # And after another start it continues
    pushed += simulator.push(message())
    with handle as same:
        assert same is handle
        until(lambda: lane(redis_url) == pushed)
    assert simulator.stats()["confirmed"] == 3


def test_stop_confirms_the_batch_in_flight(simulator: Simulator, own_redis: Server) -> None:
    # Given a poller that has appended an update, and whose next append waits for Redis
    handle = run(settings_of(simulator, own_redis.url))
    pushed = simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 1)
    with ThreadPoolExecutor() as threads:
        with writes_held_up(own_redis) as append_waits:
            pushed += simulator.push(message())
            until(append_waits)
            # When it is stopped
            stopping = threads.submit(handle.stop)
            until(lambda: not handle.is_running)
            assert not stopping.done()
        # Then stop() returns when Redis has the update and it is confirmed
        stopping.result(WITHIN_S)
        assert lane(own_redis.url) == pushed
        assert simulator.stats()["confirmed"] == 2


def test_stop_with_a_timeout_leaves_the_rest_at_telegram(simulator: Simulator, own_redis: Server) -> None:
    # Given a poller that has appended an update, and whose next append waits for Redis
    handle = run(settings_of(simulator, own_redis.url))
    pushed = simulator.push(message())
    until(lambda: simulator.stats()["confirmed"] == 1)
    with writes_held_up(own_redis) as append_waits:
        pushed += simulator.push(message())
        until(append_waits)
        # When it is stopped with a short timeout
        with pytest.raises(TimeoutError, match=r"1 updates were not durable after 0\.1 s; they are sent again"):
            handle.stop(0.1)
    # Then the update is not confirmed, and is fetched again
    assert simulator.stats()["confirmed"] == 1
    with handle:
        until(lambda: simulator.stats()["confirmed"] == 2)
    assert lane(own_redis.url) == pushed


def test_task_raises_the_fatal_error_and_resigns_the_lead(
    settings: Settings, simulator: Simulator, redis_url: str
) -> None:
    # Given a poller that leads
    handle = run(settings)
    until(lambda: simulator.stats()["polls"])
    # When Telegram starts refusing the token
    simulator.fault(method="getUpdates", status=401)
    simulator.push(message())
    # Then the task has ended with this error, the lead is free, and stop() does nothing
    assert isinstance(handle.task.exception(WITHIN_S), TokenRefusedError)
    handle.stop()
    assert not handle.is_running
    with connect(redis_url) as client:
        assert not client.exists(LEADER % BOT_ID)


# -- a custom source


def test_source_continues_only_when_its_batch_is_durable(settings: Settings, redis_url: str) -> None:
    # Given a source of three batches, the last of which exceeds the backlog limit
    source = BatchSource([update(1), update(2)], [], [update(n) for n in range(3, 253)])
    limited = settings.model_copy(update={"max_pending": 150})
    # When it runs
    handle = run(limited, source=source)
    # Then updates up to the limit are appended, and the last batch is not reported as durable
    until(lambda: len(lane(redis_url)) == 150)
    assert (source.durable, source.is_closed) == ([0, 1], False)
    # When workers have emptied the lanes
    drain(redis_url)
    # Then all of it is durable, each update once and in order, and the end of the source ends the poller
    handle.task.result(WITHIN_S)
    assert lane(redis_url) == list(range(151, 253))
    assert (source.durable, source.is_closed) == ([0, 1, 2], True)
    # And a single thread called it, which is not this one
    assert len(source.threads - {get_ident()}) == len(source.threads) == 1


def test_repeated_updates_of_a_source_are_dropped(settings: Settings, redis_url: str) -> None:
    source = BatchSource([update(1)], [update(1), update(2)])
    handle = run(settings, source=source)
    handle.task.result(WITHIN_S)
    handle.start().task.result(WITHIN_S)
    assert lane(redis_url) == [1, 2]
    assert source.durable == [0, 1, 0, 1]


def test_blocked_source_is_abandoned_at_a_stop(settings: Settings) -> None:
    def waiting() -> Iterator[list[dict[str, Any]]]:
        yield [update(1)]
        asked.set_result(None)
        wait([never])
        yield []

    asked: Future[None] = Future()
    never: Future[None] = Future()
    sink: list[Any] = []
    handle = run(settings, source=waiting(), sink=sink)
    asked.result(WITHIN_S)
    handle.stop()
    assert (sink, handle.task.exception(0)) == ([[update(1)]], None)
    never.set_result(None)


# -- a custom sink


def test_sink_gets_filtered_updates_without_redis(simulator: Simulator) -> None:
    pushed = simulator.push(message(), {"poll": {"id": "1"}}, message())
    sink: list[list[dict[str, Any]]] = []
    with run(settings_of(simulator, "redis://127.0.0.1:1/0", FILTER="message"), sink=sink) as handle:
        until(lambda: sink)
        assert handle.size == 1
    assert [each["update_id"] for batch in sink for each in batch] == [pushed[0], pushed[2]]
    assert simulator.stats()["confirmed"] == 3


def test_failing_sink_ends_the_poller_without_confirmation(settings: Settings) -> None:
    class Full:
        def append(self, updates: list[Any]) -> None:
            raise OSError("no space left")

    source = BatchSource([update(1)])
    handle = run(settings, source=source, sink=Full())
    assert isinstance(handle.task.exception(WITHIN_S), OSError)
    assert (source.durable, source.is_closed) == ([], True)
    handle.stop()


# -- asyncio


def test_source_and_sink_run_on_the_programs_event_loop(settings: Settings) -> None:
    loops: set[asyncio.AbstractEventLoop] = set()
    closed: list[bool] = []

    async def source() -> AsyncIterator[list[dict[str, Any]]]:
        try:
            for batch in endless():
                loops.add(asyncio.get_running_loop())
                yield batch
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    class AsyncSink:
        def __init__(self) -> None:
            self.batches: list[Any] = []

        async def append(self, updates: list[Any]) -> None:
            loops.add(asyncio.get_running_loop())
            await asyncio.sleep(0)
            self.batches.append(updates)

    async def program() -> None:
        sink = AsyncSink()
        async with run(settings, source=source(), sink=sink) as handle:
            await asyncio.to_thread(until, lambda: len(sink.batches) >= 10)
            # Cancelling a coroutine that awaits the handle does not stop the poller
            waiting = asyncio.ensure_future(asyncio.wait_for(handle, 0.01))
            with pytest.raises(TimeoutError):
                await waiting
            assert handle.is_running
            # And stop() on the poller's own loop is refused
            with pytest.raises(RuntimeError, match=r"use `await handle\.astop\(\)`"):
                handle.stop()
        await handle
        assert not handle.is_running
        assert sink.batches == [[update(n)] for n in range(len(sink.batches))]
        assert loops == {asyncio.get_running_loop()}
        assert closed == [True]

    asyncio.run(program())


def test_async_source_works_without_a_running_loop(settings: Settings, redis_url: str) -> None:
    async def source() -> AsyncIterator[list[dict[str, Any]]]:
        for number in (1, 2):
            yield [update(number)]
            await asyncio.sleep(0)

    run(settings, source=source()).task.result(WITHIN_S)
    assert lane(redis_url) == [1, 2]


# -- invalid arguments


def test_invalid_argument_is_refused_at_once(settings: Settings) -> None:
    with pytest.raises(SettingsError, match="BOT_TOKEN is not set"):
        run(load({}, env_file=None))
    with pytest.raises(ImportPathError, match="FILTER=no_such:function"):
        run(settings.model_copy(update={"filter": "no_such:function"}))
    with pytest.raises(TypeError, match="call your generator function"):
        run(settings, source=endless)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"a method append\(updates\)"):
        run(settings, sink={})  # type: ignore[arg-type]


def test_source_of_updates_instead_of_batches_is_refused(settings: Settings) -> None:
    handle = run(settings, source=[update(1)], sink=[])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a source must yield lists of updates, not dict"):
        handle.task.result(WITHIN_S)


def test_package_imports_nothing_until_run_is_used() -> None:
    program = "import sys, poller; print(sorted({'redis', 'requests', 'poller.handle'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
