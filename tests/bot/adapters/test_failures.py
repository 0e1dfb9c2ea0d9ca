"""A retry does not repeat the calls of a failed attempt, and no failure is lost. An outage of Redis during a handler is
not counted as its failure, and no message is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from celery_lanes.embedded_server import Server, start_server
from chatlanes.bot.calls.journal import LONGEST_OUTCOME
from tests.bot.adapters.test_matrix import BOTS
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.outages.test_outages import OUTAGE_S, check_nothing_is_counted, frozen, last
from tests.support.pipeline import BOT_ID, chats_of, message, one_chat_each

FAILING = "tests.bot.adapters.bots.failing:"


@pytest.mark.first_only
@pytest.mark.parametrize("bot", ["telebot", "async_telebot", "aiogram", "ptb"])
def test_uploads_are_not_repeated(make_pipeline: MakePipeline, bot: str) -> None:
    """Frameworks name the parts of the form differently in each attempt."""
    pipeline = make_pipeline(BOT=FAILING + bot, RETRY_BACKOFF=0.01)
    pipeline.push(message(0, 7, do="albums"))
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    pipeline.drained()
    document, album = (call for call in pipeline.simulator.calls() if call["params"].get("chat_id"))
    assert (document["method"], document["params"]["caption"]) == ("sendDocument", "a file"), worker.log
    assert "notes.txt" in str(document)
    assert album["method"] == "sendMediaGroup"
    assert pipeline.problems(f"{BOT_ID}:1") == []


#: The methods whose answers are lost once (bots/skipping.py), each in another attempt.
LOST = ("editMessageText", "copyMessage", "deleteMessage", "sendMediaGroup", "forwardMessages", "copyMessages")


@pytest.mark.first_only
@pytest.mark.parametrize("bot", ["telebot", "async_telebot", "aiogram", "ptb"])
def test_calls_without_a_result_return_none(make_pipeline: MakePipeline, bot: str) -> None:
    # Given a first call whose result is too long to store, and calls whose answers are lost
    pipeline = make_pipeline(
        BOT=f"tests.bot.adapters.bots.skipping:{bot}", RETRY_BACKOFF=0.01, MAX_ATTEMPTS=9, UNCERTAIN_CALL="skip"
    )
    sent = {"message_id": 1, "date": 0, "chat": {"id": 7, "type": "private"}, "text": "x" * LONGEST_OUTCOME}
    answer = json.dumps({"ok": True, "result": sent})
    pipeline.simulator.fault(method="sendMessage", takes_effect=True, status=200, body=answer)
    for method in LOST:
        pipeline.simulator.fault(method=method, reset=True)
    pipeline.push(message(0, 7, do="hello"))
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    pipeline.drained()
    # Then the last attempt makes none of them again, and gets None for each
    assert pipeline.dead() == [], worker.log
    calls = [call for call in pipeline.simulator.calls() if call["params"].get("chat_id")]
    assert [call["method"] for call in calls] == ["sendMessage", *LOST, "sendMessage"]
    assert calls[-1]["params"]["text"] == str([None] * (len(LOST) + 1))


def test_async_exception_handler_decides(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=FAILING + "async_telebot", MAX_ATTEMPTS=1)
    failing, _ = pipeline.push(message(0, 7, do="bad"), message(0, 8, do="harmless"))
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert pipeline.dead() == [f"{BOT_ID}:{failing}"]


@pytest.mark.parametrize(("bot", "pool"), [("async-telebot", "prefork"), ("aiogram", "threads"), ("ptb", "prefork")])
def test_call_in_flight_at_the_time_limit_is_completed(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    # Given a call whose answer takes longer than the time limit of the update
    pipeline = make_pipeline(BOT=BOTS[bot], UPDATE_TIMEOUT=1, RETRY_BACKOFF=0.01)
    pipeline.simulator.fault(method="sendMessage", hang_s=2)
    pipeline.push(message(1, 7))
    pipeline.poller()
    worker = pipeline.worker(pool, 2)
    pipeline.drained()
    # Then the next attempt gets that answer
    assert "UPDATE_TIMEOUT" in worker.log
    assert pipeline.simulator.answers() == {7: [1]}


SWALLOWING = "tests.bot.adapters.bots.failing:swallowing_"
CELLS = [
    (BOTS["telebot"], "gevent", 2),
    (BOTS["async-telebot"], "threads", 2),
    (BOTS["aiogram"], "prefork", 2),
    (BOTS["ptb"], "threads", 2),
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
