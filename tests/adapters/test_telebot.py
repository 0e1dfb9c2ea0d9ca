"""Bots of pyTelegramBotAPI as they are, through real workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.conftest import MakePipeline
from tests.pipeline.pipeline import BOT_ID, Pipeline, conversations, message
from tests.poller.waiting import until

SYNC, ASYNC = "tests.adapters.telebot_bots:sync_bot", "tests.adapters.telebot_bots:async_bot"


@pytest.mark.parametrize(
    ("bot", "pool", "slots"),
    [(SYNC, "prefork", 2), (SYNC, "threads", 8), (SYNC, "gevent", 50), (ASYNC, "prefork", 2), (ASYNC, "threads", 50)],
)
def test_chats_keep_their_order_and_a_poison_update_is_buried(
    make_pipeline: MakePipeline, bot: str, pool: str, slots: int
) -> None:
    # Given a bot of the framework, and an update that it always fails on
    pipeline = make_pipeline(BOT=bot, MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    [poison] = pipeline.push(message(1, 999, do="fails"))
    pipeline.push(*conversations(chats=30, each=10))
    # When it has run them all
    worker = pipeline.worker(pool, slots)
    pipeline.poller()
    pipeline.drained()
    worker.stop()
    # Then each chat was answered in order, and the poison is buried after its attempts
    assert pipeline.simulator.answers() == {chat: list(range(1, 11)) for chat in range(1, 31)}
    assert pipeline.count("buried") == 1
    assert [problem["message"] for problem in pipeline.problems(f"{BOT_ID}:{poison}")] == ["attempt 1", "attempt 2"]


def texts(pipeline: Pipeline, chat: int) -> list[Any]:
    """What was sent to a chat."""
    calls = [call["params"] for call in pipeline.simulator.calls()]
    return [params.get("text") for params in calls if str(params.get("chat_id")) == str(chat)]


def test_a_killed_handler_repeats_no_message(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=SYNC)
    pipeline.push(message(0, 7, do="three"))
    pipeline.poller()
    pipeline.worker("prefork", 1)
    pipeline.drained()
    assert texts(pipeline, 7) == ["part 1", "part 2", "part 3"]


def test_the_second_step_of_a_conversation_runs_on_another_worker(make_pipeline: MakePipeline) -> None:
    # Given a bot that asked for a name on one worker
    pipeline = make_pipeline(BOT=SYNC)
    pipeline.poller()
    first = pipeline.worker("prefork", 1)
    pipeline.push(message(0, 7, do="ask"))
    pipeline.drained()
    first.stop()
    # When the answer is handled by another
    second = pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, do="Ann"))
    pipeline.drained()
    # Then it is taken for the name
    assert texts(pipeline, 7) == ["Your name?", f"Hello Ann from {second.name}"]


def test_files_are_uploaded_and_states_counted_by_the_example(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="examples.telebot_bot:bot")
    pipeline.poller()
    pipeline.worker("prefork", 2)
    for text in ("/start", "/count", "/count", "/button", "/photo", "again"):
        pipeline.push(command(text))
    pipeline.drained()
    calls = pipeline.simulator.calls()
    assert texts(pipeline, 7)[1:4] == ["1", "2", "Here it is."]
    assert texts(pipeline, 7)[5] == "again"
    assert [call["method"] for call in calls].count("sendPhoto") == 1


def test_a_bot_with_another_token_does_not_start(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.adapters.telebot_other:bot")
    worker = pipeline.worker("prefork", 1, is_awaited=False)
    until(lambda: not worker.is_running())
    assert "was made with another token than BOT_TOKEN" in worker.log


def command(text: str) -> dict[str, Any]:
    update = message(0, 7, do=text)
    if text.startswith("/"):
        update["message"]["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text)}]
    return update
