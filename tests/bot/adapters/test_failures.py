"""A retry does not repeat the calls of a failed attempt, and no failure is lost."""

from __future__ import annotations

import pytest

from tests.bot.adapters.test_matrix import BOTS
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, message

FAILING = "tests.bot.adapters.bots.failing:"


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
