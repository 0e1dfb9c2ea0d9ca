"""Bots of other frameworks as they are, through real workers: what holds for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.conftest import MakePipeline
from tests.pipeline.pipeline import BOT_ID, Pipeline, conversations, message
from tests.poller.waiting import until

TELEBOT, ASYNC_TELEBOT = "tests.adapters.telebot_bots:sync_bot", "tests.adapters.telebot_bots:async_bot"
AIOGRAM = "tests.adapters.aiogram_bots:dp"
PTB = "tests.adapters.ptb_bots:application"
#: One of each framework, with all that a bot may want.
ALL = [TELEBOT, AIOGRAM, PTB]
EXAMPLES = [
    "examples.plain_bot:handle",
    "examples.telebot_bot:bot",
    "examples.aiogram_bot:dp",
    "examples.ptb_bot:application",
]


PRESSED = {
    "id": "5",
    "from": {"id": 7, "is_bot": False, "first_name": "Ann"},
    "chat_instance": "1",
    "data": "pressed",
}


@pytest.mark.parametrize(
    ("bot", "pool", "slots"),
    [
        (TELEBOT, "prefork", 2),
        (TELEBOT, "threads", 8),
        (TELEBOT, "gevent", 50),
        (ASYNC_TELEBOT, "prefork", 2),
        (ASYNC_TELEBOT, "threads", 50),
        (AIOGRAM, "prefork", 2),
        (AIOGRAM, "threads", 50),
        (PTB, "prefork", 2),
        (PTB, "threads", 50),
    ],
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


@pytest.mark.parametrize("bot", ALL)
def test_a_killed_handler_repeats_no_message(make_pipeline: MakePipeline, bot: str) -> None:
    pipeline = make_pipeline(BOT=bot)
    pipeline.push(message(0, 7, do="three"))
    pipeline.poller()
    pipeline.worker("prefork", 1)
    pipeline.drained()
    assert texts(pipeline) == ["part 1", "part 2", "part 3"]


@pytest.mark.parametrize("bot", ALL)
def test_the_second_step_of_a_conversation_runs_on_another_worker(make_pipeline: MakePipeline, bot: str) -> None:
    # Given a bot that asked for a name on one worker
    pipeline = make_pipeline(BOT=bot)
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
    assert texts(pipeline) == ["Your name?", f"Hello Ann from {second.name}"]


@pytest.mark.parametrize("bot", ALL)
def test_files_are_uploaded(make_pipeline: MakePipeline, bot: str) -> None:
    pipeline = make_pipeline(BOT=bot)
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, do="upload"))
    pipeline.drained()
    [sent] = [call["params"] for call in pipeline.simulator.calls("sendDocument")]
    assert sent["caption"] == "a file"
    assert "notes.txt" in str(sent)


@pytest.mark.parametrize("bot", EXAMPLES)
def test_the_example_answers_counts_shows_a_button_and_a_photo(make_pipeline: MakePipeline, bot: str) -> None:
    pipeline = make_pipeline(BOT=bot)
    pipeline.poller()
    pipeline.worker("prefork", 2)
    pipeline.push(*(command(text) for text in ("/start", "/count", "/count", "/button", "/photo", "again")))
    pipeline.push({"callback_query": {**PRESSED, "message": command("/button")["message"]}})
    pipeline.drained()
    assert texts(pipeline)[1:] == ["1", "2", "Here it is.", None, "again"]
    assert len(pipeline.simulator.calls("sendPhoto")) == 1
    assert [call["params"]["text"] for call in pipeline.simulator.calls("answerCallbackQuery")] == ["Thank you."]


def test_hooks_of_start_and_shutdown_run_once_in_each_process(make_pipeline: MakePipeline) -> None:
    # Given a bot whose start-up calls the Bot API
    pipeline = make_pipeline(BOT=AIOGRAM)
    pipeline.push(*conversations(chats=20, each=5))
    pipeline.poller()
    workers = [pipeline.worker("threads", 20), pipeline.worker("prefork", 2)]
    pipeline.drained()
    for worker in workers:
        worker.stop()
    # Then each process that handled updates started and ended it once
    pids = sorted({event.pid for event in pipeline.history})
    for hook in ("startup", "shutdown"):
        assert sorted(map(int, (pipeline.directory / hook).read_text().split())) == pids


@pytest.mark.parametrize(
    ("bot", "pool", "sentence"),
    [
        ("tests.adapters.telebot_other:bot", "prefork", "was made with another token than BOT_TOKEN"),
        (AIOGRAM, "gevent", "greenlets cannot take turns with an event loop"),
    ],
)
def test_a_bot_that_cannot_work_does_not_start(make_pipeline: MakePipeline, bot: str, pool: str, sentence: str) -> None:
    pipeline = make_pipeline(BOT=bot)
    worker = pipeline.worker(pool, 1, is_awaited=False)
    until(lambda: not worker.is_running())
    assert sentence in worker.log


def texts(pipeline: Pipeline) -> list[Any]:
    """What was sent to chat 7."""
    calls = [call["params"] for call in pipeline.simulator.calls()]
    return [params.get("text") for params in calls if str(params.get("chat_id")) == "7"]


def command(text: str) -> dict[str, Any]:
    update = message(0, 7, do=text)
    if text.startswith("/"):
        update["message"]["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text)}]
    return update
