"""An outage of Redis during a framework's handler is not counted as its failure, and no message is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chatlanes.sandbox.server import Server, start_server
from tests.bot.adapters.test_matrix import BOTS
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.outages.test_outages import OUTAGE_S, check_nothing_is_counted, frozen, last
from tests.support.pipeline import message

SWALLOWING = "tests.bot.adapters.bots.failing:swallowing_"
CELLS = [
    (BOTS["telebot"], "threads"),
    (BOTS["telebot"], "gevent"),
    (BOTS["async-telebot"], "threads"),
    (BOTS["aiogram"], "prefork"),
    (BOTS["aiogram"], "threads"),
    (BOTS["ptb"], "threads"),
    (BOTS["ptb"], "prefork"),
]


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "redis") as redis:
        yield redis


@pytest.mark.parametrize(("bot", "pool"), CELLS)
def test_outage_is_not_counted(make_pipeline: MakePipeline, own_redis: Server, bot: str, pool: str) -> None:
    # Given handlers in flight whose next step is a call, with a single attempt allowed
    pipeline = make_pipeline(redis_url=own_redis.url, BOT=bot, LEASE_SECONDS=2, MAX_ATTEMPTS=1)
    in_flight = pipeline.push(*(message(1, chat, do="waits") for chat in (1, 2)))
    pipeline.poller()
    worker = pipeline.worker(pool, 2)
    pipeline.started(*in_flight)
    # When Redis hangs for longer than its clients wait
    with frozen(own_redis):
        pipeline.open("gate")
        last(OUTAGE_S)
    # Then each answers once, and no failure is counted
    pipeline.drained()
    check_nothing_is_counted(pipeline, *in_flight)
    assert pipeline.simulator.answers() == {1: [1], 2: [1]}, worker.log


@pytest.mark.parametrize("bot", ["telebot", "async_telebot", "aiogram", "ptb"])
def test_bot_that_swallows_errors_loses_no_message(make_pipeline: MakePipeline, own_redis: Server, bot: str) -> None:
    # Given a bot that catches every exception, in its handler or in its error handler
    pipeline = make_pipeline(redis_url=own_redis.url, BOT=SWALLOWING + bot, LEASE_SECONDS=2, MAX_ATTEMPTS=1)
    [update] = pipeline.push(message(1, 7))
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    pipeline.started(update)
    with frozen(own_redis):
        pipeline.open("gate")
        last(OUTAGE_S)
    pipeline.drained()
    assert pipeline.simulator.answers() == {7: [1]}, worker.log
