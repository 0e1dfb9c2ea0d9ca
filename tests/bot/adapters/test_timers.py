"""Timers of bots of other frameworks: set with `current()`, run by `Bot(…, on_timer=…)`."""

from __future__ import annotations

import pytest

from celery_lanes.protocol import keys
from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, message
from tests.support.waiting import until

MODULE = "tests.bot.adapters.bots.timers"


@pytest.mark.parametrize(
    ("bot", "pool"),
    [
        ("aiogram_bot", "prefork"),
        ("telebot_bot", "gevent"),
        ("async_telebot_bot", "threads"),
        ("ptb_bot", "threads"),
        ("of_main", "threads"),
    ],
)
def test_calls_in_on_timer_are_calls_of_the_timer(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    # Given a bot whose second call in on_timer gets no answer
    pipeline = make_pipeline(BOT=f"{MODULE}:{bot}", LEASE_SECONDS=2)
    pipeline.simulator.fault(method="sendMessage", chat_id=7, times=2)
    pipeline.simulator.fault(method="sendMessage", chat_id=7, hang_s=60)
    pipeline.poller()
    worker = pipeline.worker(pool, 2)
    pipeline.push(message(0, 7, do="hello"))
    until(lambda: texts(pipeline, 7) == ["in a moment, 1", "hello", "again hello"])
    # When its worker is killed meanwhile
    [journaled] = list(pipeline.redis.scan_iter(f"{keys.JOURNAL}{BOT_ID}:timer:*"))
    worker.kill_all()
    # Then another one repeats only this call, because the calls are journaled
    pipeline.worker(pool, 2)
    until(lambda: texts(pipeline, 7) == ["in a moment, 1", "hello", "again hello", "again hello"])
    pipeline.drained()
    assert not pipeline.redis.exists(journaled)
    assert pipeline.dead() == []


SCHEDULES = "tests.bot.adapters.bots.schedules"


@pytest.mark.first_only
@pytest.mark.parametrize("framework", ["aiogram", "ptb"])
def test_a_second_attempt_repeats_no_call(make_pipeline: MakePipeline, framework: str) -> None:
    pipeline = make_pipeline(
        BOT=f"{SCHEDULES}:{framework}_bot", SCHEDULES=f"{SCHEDULES}:of_{framework}", RETRY_BACKOFF=0.1, LEASE_SECONDS=2
    )
    pipeline.worker("threads", 2)
    until(lambda: texts(pipeline, 7)[:2] == ["digest, attempt 1", "done"])
