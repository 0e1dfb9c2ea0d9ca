"""An outage of Redis during a framework's handler is not counted as its failure, and no message is lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from chatlanes.sandbox.server import Server, start_server
from tests.bot.adapters.test_matrix import BOTS
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.outages.test_outages import OUTAGE_S, check_nothing_is_counted, frozen, last
from tests.support.pipeline import chats_of, message, one_chat_each

SWALLOWING = "tests.bot.adapters.bots.failing:swallowing_"
CELLS = [
    (BOTS["telebot"], "threads", 2),
    (BOTS["telebot"], "gevent", 2),
    (BOTS["async-telebot"], "threads", 2),
    (BOTS["aiogram"], "prefork", 2),
    (BOTS["aiogram"], "threads", 2),
    (BOTS["ptb"], "threads", 2),
    (BOTS["ptb"], "prefork", 2),
]
SWALLOWING_CELLS = [(f"{SWALLOWING}{bot}", "threads", 2) for bot in ("telebot", "async_telebot", "aiogram", "ptb")]


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "redis") as redis:
        yield redis


def test_outage_is_not_counted(make_pipeline: MakePipeline, own_redis: Server) -> None:
    # Given handlers in flight in each framework and pool, whose next step is a call, with a single attempt allowed
    pipeline = make_pipeline(redis_url=own_redis.url, QUEUES=len(CELLS), LEASE_SECONDS=2, MAX_ATTEMPTS=1)
    chats = [chat for place in range(len(CELLS)) for chat in islice(chats_of(place, len(CELLS)), 2)]
    in_flight = pipeline.push(*(message(1, chat, do="waits") for chat in chats))
    pipeline.poller()
    pipeline.start_workers(CELLS)
    pipeline.started(*in_flight)
    # When Redis hangs for longer than its clients wait
    with frozen(own_redis):
        pipeline.open("gate")
        last(OUTAGE_S)
    # Then each answers once, and no failure is counted
    pipeline.drained()
    check_nothing_is_counted(pipeline, *in_flight)
    assert pipeline.simulator.answers() == {chat: [1] for chat in chats}


def test_bots_that_swallow_errors_lose_no_message(make_pipeline: MakePipeline, own_redis: Server) -> None:
    # Given a bot of each framework that catches every exception, in its handler or in its error handler
    pipeline = make_pipeline(redis_url=own_redis.url, QUEUES=len(SWALLOWING_CELLS), LEASE_SECONDS=2, MAX_ATTEMPTS=1)
    chats = one_chat_each(SWALLOWING_CELLS)
    in_flight = pipeline.push(*(message(1, chat) for chat in chats))
    pipeline.poller()
    pipeline.start_workers(SWALLOWING_CELLS)
    pipeline.started(*in_flight)
    with frozen(own_redis):
        pipeline.open("gate")
        last(OUTAGE_S)
    pipeline.drained()
    assert pipeline.simulator.answers() == {chat: [1] for chat in chats}
