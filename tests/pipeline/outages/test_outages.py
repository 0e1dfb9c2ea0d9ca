"""An outage of Redis while handlers run does not count as their failure: no attempt is counted, nothing is buried."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chatlanes.sandbox.server import Server, start_server
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message

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


@pytest.mark.parametrize(("bot", "pool", "slots"), WHERE, ids=str)
@pytest.mark.parametrize("do", ["gate:a", "gate:a counts:x"], ids=["a call", "a session"])
def test_an_outage_is_not_an_attempt(
    make_pipeline: MakePipeline, own_redis: Server, bot: str, pool: str, slots: int, do: str
) -> None:
    # Given handlers in flight that need Redis next, and have only one attempt
    pipeline = make_pipeline(redis_url=own_redis.url, BOT=bot, LEASE_SECONDS=2, MAX_ATTEMPTS=1)
    in_flight = pipeline.push(*(message(1, chat, do=do) for chat in range(1, min(slots, 4) + 1)))
    pipeline.poller()
    worker = pipeline.worker(pool, slots)
    pipeline.started(*in_flight)
    # When Redis hangs for longer than every timeout
    with frozen(own_redis):
        pipeline.open("a")
        last(OUTAGE_S)
    # Then each runs to its end, and neither a failure nor a death is counted
    pipeline.drained()
    check_nothing_is_counted(pipeline, *in_flight)
    assert set(pipeline.happened("end")) == set(in_flight), worker.log
    assert pipeline.simulator.answers() == {chat: [1] for chat in range(1, len(in_flight) + 1)}


@pytest.mark.parametrize("do", ["fails:9", "counts:x"], ids=["failed", "succeeded"])
def test_an_outcome_that_cannot_be_written_is_not_a_death(
    make_pipeline: MakePipeline, own_redis: Server, do: str
) -> None:
    # Given a handler in a prefork child that ends while Redis hangs
    pipeline = make_pipeline(redis_url=own_redis.url, LEASE_SECONDS=2, MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    [update] = pipeline.push(message(0, 7, do=f"counts:x gate:a {do}"))
    pipeline.poller()
    pipeline.worker("prefork", 1)
    pipeline.started(update)
    with frozen(own_redis):
        pipeline.open("a")
        last(OUTAGE_S)
    pipeline.drained()
    # Then it runs again, with the same attempt number
    attempts = [event.attempt for event in pipeline.history if event.what == "start"]
    assert attempts == ([1, 1, 2] if do == "fails:9" else [1, 1])
    assert len(pipeline.dead()) == (do == "fails:9")
    # And its session change is stored once
    assert pipeline.session(7) == (None if do == "fails:9" else {"n": 2})


@pytest.mark.parametrize("limit_s", [3, 60])
@pytest.mark.parametrize(
    ("bot", "pool"),
    [(PLAIN, "prefork"), (PLAIN, "threads"), (PLAIN, "gevent"), (COROUTINES, "prefork"), (COROUTINES, "threads")],
)
def test_a_timeout_during_an_outage_is_not_an_attempt(
    make_pipeline: MakePipeline, own_redis: Server, bot: str, pool: str, limit_s: int
) -> None:
    pipeline = make_pipeline(redis_url=own_redis.url, BOT=bot, LEASE_SECONDS=10, MAX_ATTEMPTS=1, UPDATE_TIMEOUT=limit_s)
    [update] = pipeline.push(message(1, 7, do="gate:a"))
    pipeline.poller()
    pipeline.worker(pool, 2)
    pipeline.started(update)
    with frozen(own_redis):
        pipeline.open("a")
        last(OUTAGE_S)
    pipeline.drained()
    check_nothing_is_counted(pipeline, update)
    assert pipeline.simulator.answers() == {7: [1]}


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
