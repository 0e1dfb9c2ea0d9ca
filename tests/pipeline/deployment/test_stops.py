"""Workers and pollers are stopped and started again, as in a deploy: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import pytest

from tests.support.pipeline import Pipeline, conversations, message
from tests.support.waiting import until


@pytest.mark.parametrize("pool", [("prefork", 2), ("threads", 8)], ids=str)  # all pools: tests/lanes/worker
def test_the_next_worker_continues_with_exactly_the_next_updates(pipeline: Pipeline, pool: tuple[str, int]) -> None:
    # Given a worker in the middle of 500 updates, some of them prefetched and not started
    pipeline.push(*conversations(chats=25, each=20))
    pipeline.poller()
    first = pipeline.worker(*pool)
    pipeline.some_ended(100)
    # When it is stopped
    first.stop()
    # Then every update that it started has ended and is settled, and it holds no leases
    stopped = pipeline.history
    ended = pipeline.happened("end")
    assert len(stopped) == 2 * len(ended)
    assert len(ended) < 500
    assert pipeline.count("settled") == len(ended)
    assert pipeline.leases() == []
    # And the next worker continues with the next update of each chat
    pipeline.worker(*pool)
    pipeline.drained()
    pipeline.check_once_each()


def test_running_updates_end_before_the_worker(pipeline: Pipeline, pool: tuple[str, int]) -> None:
    # Given an update in every slot of the pool, and another one of each chat behind it
    _, slots = pool
    running = pipeline.push(*(message(1, chat, do="gate:a") for chat in range(1, slots + 1)))
    behind = pipeline.push(*(message(2, chat) for chat in range(1, slots + 1)))
    pipeline.poller()
    worker = pipeline.worker(*pool)
    pipeline.started(*running)
    until(lambda: pipeline.count("appended") == 2 * slots)
    # When the worker is asked to stop, it waits for the running updates
    worker.ask_to_stop()
    worker.tells("Warm shutdown")
    pipeline.open("a")
    assert worker.exit_code() == 0
    # Then these are settled, and no other was started
    assert sorted(pipeline.happened("start")) == sorted(running)
    assert {pipeline.state_of(update) for update in running} == {None}
    assert {pipeline.state_of(update) for update in behind} == {"ready"}


def test_a_poller_is_stopped_and_started_again_under_load(pipeline: Pipeline) -> None:
    # Given a poller and a worker under load
    pipeline.worker("threads", 8)
    pipeline.push(*conversations(chats=50, each=16))
    first = pipeline.poller()
    until(lambda: pipeline.simulator.stats()["confirmed"] >= 200)
    # When the poller is stopped
    first.stop()
    # Then exactly the appended updates are confirmed
    assert pipeline.simulator.stats()["confirmed"] == pipeline.count("appended")
    # And the next poller fetches the rest, each update once
    pipeline.push(*(message(n, chat) for n in range(17, 23) for chat in range(1, 51)))
    second = pipeline.poller()
    pipeline.drained()
    second.stop()
    pipeline.check_once_each()
    assert pipeline.count("seen") == 0
