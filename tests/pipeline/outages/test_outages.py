"""An outage of Redis while handlers are in flight is not their failure: no attempt is counted, nothing is buried."""

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

#: A client of ours gives up on a frozen Redis after 5 s, and looks once more before the update goes back.
OUTAGE_S = 13.0
#: Each starts, waits at the gate `a`, and then needs Redis for its call.
IN_FLIGHT = (2, 4)

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
    """Frozen inside of the block: it accepts connections and answers nothing."""
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(redis.pid, signal.SIGCONT)


def last(seconds: float) -> None:
    """How long the outage lasts: nothing is waited for."""
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
    # Given handlers in flight that need Redis next, and may fail once only
    pipeline = make_pipeline(redis_url=own_redis.url, BOT=bot, LEASE_SECONDS=2, MAX_ATTEMPTS=1)
    in_flight = pipeline.push(*(message(1, chat, do=do) for chat in range(1, min(slots, 4) + 1)))
    pipeline.poller()
    worker = pipeline.worker(pool, slots)
    pipeline.started(*in_flight)
    # When Redis hangs for longer than anybody waits for it
    with frozen(own_redis):
        pipeline.open("a")
        last(OUTAGE_S)
    # Then each runs to its end, and no failure and no death of it is counted
    pipeline.drained()
    check_nothing_is_counted(pipeline, *in_flight)
    assert set(pipeline.happened("end")) == set(in_flight), worker.log
    assert pipeline.simulator.answers() == {chat: [1] for chat in range(1, len(in_flight) + 1)}


@pytest.mark.parametrize("do", ["fails:9", "counts:x"], ids=["failed", "succeeded"])
def test_an_outcome_that_redis_cannot_be_told_is_not_a_death(
    make_pipeline: MakePipeline, own_redis: Server, do: str
) -> None:
    # Given a handler that ends while Redis hangs, in a process of its own
    pipeline = make_pipeline(redis_url=own_redis.url, LEASE_SECONDS=2, MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    [update] = pipeline.push(message(0, 7, do=f"counts:x gate:a {do}"))
    pipeline.poller()
    pipeline.worker("prefork", 1)
    pipeline.started(update)
    with frozen(own_redis):
        pipeline.open("a")
        last(OUTAGE_S)
    pipeline.drained()
    # Then it runs again, as if for the first time
    attempts = [event.attempt for event in pipeline.history if event.what == "start"]
    assert attempts == ([1, 1, 2] if do == "fails:9" else [1, 1])
    assert len(pipeline.dead()) == (do == "fails:9")
    # And what was kept of it is kept once
    assert pipeline.session(7) == (None if do == "fails:9" else {"n": 2})


@pytest.mark.parametrize("limit_s", [3, 60])
@pytest.mark.parametrize(
    ("bot", "pool"),
    [(PLAIN, "prefork"), (PLAIN, "threads"), (PLAIN, "gevent"), (COROUTINES, "prefork"), (COROUTINES, "threads")],
)
def test_a_time_limit_that_an_outage_uses_up_is_not_an_attempt(
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


@pytest.mark.parametrize("do", ["away:timeout", "away:connection"])
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
    assert problem["type"] == {"away:timeout": "TimeoutError", "away:connection": "ConnectionError"}[do]
