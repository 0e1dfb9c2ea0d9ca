"""examples/digest_bot.py: those who subscribed get the digest, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_lanes.protocol import Store
from chatlanes.bot.schedules import ScheduleRecord, owner_of
from chatlanes_sandbox.simulator import Simulator, start
from tests.support.pipeline import BOT_ID, TOKEN, Pipeline, message
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

FOUR_DAYS_MS = 4 * 86_400_000


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def pipeline(simulator: Simulator, redis_url: str, tmp_path: Path) -> Iterator[Pipeline]:
    settings = {"BOT": "examples.digest_bot:bot", "SCHEDULES": "examples.digest_bot:schedules"}
    pipeline = Pipeline(tmp_path, simulator, redis_url, **settings)
    yield pipeline
    pipeline.close()


def test_subscribers_get_the_digest(pipeline: Pipeline) -> None:
    # Given three chats that subscribed, of which one has left
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    for chat in (7, 8, 9):
        pipeline.push({"message": {**message(0, chat)["message"], "text": "/start"}})
    pipeline.drained()
    pipeline.push({"message": {**message(0, 8)["message"], "text": "/stop"}})
    pipeline.drained()
    worker.stop()
    sent = len(pipeline.simulator.calls("sendMessage"))
    # When the workers were away at nine o'clock on a working day, and come back
    store = Store(pipeline.redis)
    now_ms, found = store.schedules()
    place = owner_of(BOT_ID), "digest"
    before = ScheduleRecord.decode(found[place])
    earlier = ScheduleRecord(before.cron, before.tz, now_ms - FOUR_DAYS_MS)
    assert store.advance(*place, known=found[place], record=earlier.encode())
    pipeline.worker("threads", 2)
    # Then both others get one digest
    until(lambda: len(pipeline.simulator.calls("sendMessage")) >= sent + 2 and pipeline.pending() == 0)
    calls = pipeline.simulator.calls("sendMessage")[sent:]
    assert sorted((call["params"]["chat_id"], call["params"]["text"][:14]) for call in calls) == [
        (7, "The digest of "),
        (9, "The digest of "),
    ]
