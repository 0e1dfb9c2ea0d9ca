"""An outage of Redis while handlers run does not count as their failure: no attempt is counted, nothing is buried."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from celery_lanes.embedded_server import Server, start_server
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, chats_of, message, one_chat_each
from tests.support.waiting import until

#: Our clients time out after 5 s on a frozen Redis, and retry once before the update is released.
OUTAGE_S = 13.0

PLAIN, COROUTINES = "tests.support.bots:handle", "tests.support.bots:coroutines"
WHERE = [
    (PLAIN, "prefork", 2),
    (PLAIN, "threads", 4),
    (PLAIN, "gevent", 10),
    (PLAIN, "solo", 1),
    (COROUTINES, "prefork", 2),
    (COROUTINES, "threads", 4),
]


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "redis") as redis:
        yield redis


@contextmanager
def frozen(redis: Server) -> Iterator[None]:
    """Freeze Redis inside of the block: it accepts connections and does not reply."""
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(redis.pid, signal.SIGCONT)


def last(seconds: float) -> None:
    """Let the outage last this long; there is no condition to wait for."""
    time.sleep(seconds)


def check_nothing_is_counted(pipeline: Pipeline, *updates: int) -> None:
    assert pipeline.dead() == []
    assert pipeline.count("retried") == 0
    assert {event.attempt for event in pipeline.history if event.id in updates} == {1}


@pytest.mark.first_only
@pytest.mark.parametrize("do", ["gate:a", "gate:a counts:x"], ids=["a call", "a session"])
def test_an_outage_is_not_an_attempt(make_pipeline: MakePipeline, own_redis: Server, do: str) -> None:
    # Given handlers in flight in every pool that need Redis next, and have only one attempt
    pipeline = make_pipeline(redis_url=own_redis.url, QUEUES=len(WHERE), LEASE_SECONDS=2, MAX_ATTEMPTS=1)
    chats = chats_with_one_slot_each(WHERE)
    in_flight = pipeline.push(*(message(1, chat, do=do) for chat in chats))
    pipeline.poller()
    workers = pipeline.start_workers(WHERE)
    pipeline.started(*in_flight)
    # When Redis hangs for longer than every timeout
    with frozen(own_redis):
        pipeline.open("a")
        last(OUTAGE_S)
    # Then each runs to its end, and neither a failure nor a death is counted
    pipeline.drained()
    check_nothing_is_counted(pipeline, *in_flight)
    assert set(pipeline.happened("end")) == set(in_flight)
    assert {event.worker for event in pipeline.history} == {worker.name for worker in workers}
    assert pipeline.simulator.answers() == {chat: [1] for chat in chats}


def chats_with_one_slot_each(cells: Sequence[tuple[str, str, int]]) -> list[int]:
    """As many chats in each worker's queue as it has slots, at most four."""
    return [
        chat for place, (_, _, slots) in enumerate(cells) for chat in islice(chats_of(place, len(cells)), min(slots, 4))
    ]


def test_an_outcome_that_cannot_be_written_is_not_a_death(make_pipeline: MakePipeline, own_redis: Server) -> None:
    # Given handlers in prefork children that end while Redis hangs
    pipeline = make_pipeline(redis_url=own_redis.url, LEASE_SECONDS=2, MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    fails, succeeds = pipeline.push(
        message(0, 7, do="counts:x gate:a fails:9"), message(0, 8, do="counts:x gate:a counts:x")
    )
    pipeline.poller()
    pipeline.worker("prefork", 2)
    pipeline.started(fails, succeeds)
    with frozen(own_redis):
        pipeline.open("a")
        last(OUTAGE_S)
    pipeline.drained()
    # Then each runs again, with the same attempt number, unless Redis read the outcome when it continued
    attempts = {
        update: [event.attempt for event in pipeline.history if event.what == "start" and event.id == update]
        for update in (fails, succeeds)
    }
    assert attempts[fails] in ([1, 1, 2], [1, 2])
    assert attempts[succeeds] in ([1, 1], [1])
    # And only what the handler raised is counted
    assert pipeline.count("retried") == 1
    assert pipeline.dead() == [f"{BOT_ID}:{fails}"]
    # And a session change is stored once
    assert (pipeline.session(7), pipeline.session(8)) == (None, {"n": 2})


@pytest.mark.parametrize("limit_s", [3, 60])
def test_a_timeout_during_an_outage_is_not_an_attempt(
    make_pipeline: MakePipeline, own_redis: Server, limit_s: int
) -> None:
    # Given a handler in flight in every pool that has time limits
    cells = [cell for cell in WHERE if cell[1] != "solo"]
    pipeline = make_pipeline(
        redis_url=own_redis.url, QUEUES=len(cells), LEASE_SECONDS=10, MAX_ATTEMPTS=1, UPDATE_TIMEOUT=limit_s
    )
    chats = one_chat_each(cells)
    pipeline.poller()
    pipeline.start_workers(cells)
    in_flight = pipeline.push(*(message(1, chat, do="gate:a") for chat in chats))
    pipeline.started(*in_flight)
    with frozen(own_redis):
        pipeline.open("a")
        last(OUTAGE_S)
    pipeline.drained()
    check_nothing_is_counted(pipeline, *in_flight)
    # And an answer is repeated only if the limit interrupted its call
    answers = pipeline.simulator.answers()
    assert {chat: set(given) for chat, given in answers.items()} == {chat: {1} for chat in chats}
    assert sum(map(len, answers.values())) - len(chats) <= pipeline.count("uncertain")


def test_a_timeout_after_an_outage_is_not_an_attempt(make_pipeline: MakePipeline, own_redis: Server) -> None:
    # Given handlers that lose time in an outage which ends before their limit
    cells = [cell for cell in WHERE[:3] if cell[1] != "threads"]
    pipeline = make_pipeline(redis_url=own_redis.url, QUEUES=len(cells), MAX_ATTEMPTS=1, UPDATE_TIMEOUT=5)
    pipeline.poller()
    pipeline.start_workers(cells)
    in_flight = pipeline.push(*(message(1, chat, do="gate:a says:x gate:b") for chat in one_chat_each(cells)))
    pipeline.started(*in_flight)
    with frozen(own_redis):
        pipeline.open("a")
        last(2.0)
    # When they reach it
    until(lambda: set(pipeline.happened("raise")) == set(in_flight))
    pipeline.open("b")
    # Then they run again, and nothing is counted
    pipeline.drained()
    check_nothing_is_counted(pipeline, *in_flight)
    assert set(pipeline.happened("end")) == set(in_flight)


@pytest.mark.first_only
@pytest.mark.parametrize("do", ["own_redis:timeout", "own_redis:connection"])
@pytest.mark.parametrize(("bot", "pool", "slots"), WHERE[:2] + WHERE[-1:], ids=str)
def test_an_error_of_the_bots_own_redis_is_its_failure(
    make_pipeline: MakePipeline, bot: str, pool: str, slots: int, do: str
) -> None:
    pipeline = make_pipeline(BOT=bot, MAX_ATTEMPTS=1)
    [update] = pipeline.push(message(1, 7, do=do))
    pipeline.poller()
    pipeline.worker(pool, slots)
    pipeline.drained()
    assert pipeline.dead() == [f"{BOT_ID}:{update}"]
    [problem] = pipeline.problems(f"{BOT_ID}:{update}")
    assert problem["type"] == {"own_redis:timeout": "TimeoutError", "own_redis:connection": "ConnectionError"}[do]
