"""Unchanged bots of other frameworks, through real workers: examples, hooks, refusals."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.bot.adapters.test_matrix import BOTS, texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import conversations, message

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


@pytest.mark.first_only
@pytest.mark.parametrize("bot", EXAMPLES)
def test_examples(make_pipeline: MakePipeline, bot: str) -> None:
    pipeline = make_pipeline(BOT=bot)
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(*(command(text) for text in ("/start", "/count", "/count", "/button", "/photo", "again")))
    pipeline.push({"callback_query": {**PRESSED, "message": command("/button")["message"]}})
    pipeline.drained()
    assert texts(pipeline, 7)[1:] == ["1", "2", "Here it is.", "again"]
    assert len(pipeline.simulator.calls("sendPhoto")) == 1
    assert [call["params"]["text"] for call in pipeline.simulator.calls("answerCallbackQuery")] == ["Thank you."]


def test_startup_and_shutdown_hooks_run_once_per_process(make_pipeline: MakePipeline) -> None:
    # Given a bot whose start-up calls the Bot API
    pipeline = make_pipeline(BOT=BOTS["aiogram"])
    pipeline.push(*conversations(chats=20, each=5))
    pipeline.poller()
    workers = [pipeline.worker("threads", 20), pipeline.worker("prefork", 2)]
    pipeline.drained()
    for worker in workers:
        worker.stop()
    # Then each process ran both hooks once: the children of prefork, and the other worker
    started, ended = ((pipeline.directory / hook).read_text().split() for hook in ("startup", "shutdown"))
    assert sorted(started) == sorted(ended) == sorted(set(started))
    assert len(started) == 3
    assert {str(event.pid) for event in pipeline.history} <= set(started)


@pytest.mark.first_only
@pytest.mark.parametrize("name", ["dp", "app"])
def test_dispatcher_that_was_given_a_bot(make_pipeline: MakePipeline, name: str) -> None:
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.with_bot:{name}")
    pipeline.push(message(0, 7, do="hello"))
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    pipeline.drained()
    worker.stop()
    assert texts(pipeline, 7) == ["hello"]
    assert all((pipeline.directory / hook).exists() for hook in ("startup", "shutdown"))


def test_bot_with_another_token_does_not_start(make_pipeline: MakePipeline) -> None:
    worker = make_pipeline(BOT="tests.bot.adapters.bots.telebot_other:bot").worker("prefork", 1, is_awaited=False)
    assert worker.exit_code() == 2
    assert "was created with another token than that of its settings" in worker.log


def command(text: str) -> dict[str, Any]:
    update = message(0, 7, do=text)
    if text.startswith("/"):
        update["message"]["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text)}]
    return update


CHATS = range(1, 21)


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("name", "pool", "slots"),
    [
        ("dp", "prefork", 2),
        ("bot", "threads", 8),
        ("application", "threads", 8),
    ],
)
def test_connection_opened_at_import_works(make_pipeline: MakePipeline, name: str, pool: str, slots: int) -> None:
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.sqlite:{name}", MAX_ATTEMPTS=1)
    pipeline.poller()
    pipeline.worker(pool, slots)
    pipeline.push(*(message(0, chat, do="a word") for chat in CHATS))
    pipeline.drained()
    assert pipeline.dead() == []
    assert {chat: texts(pipeline, chat) for chat in CHATS} == {chat: ["kept a word"] for chat in CHATS}
    with closing(sqlite3.connect(pipeline.directory / "bot.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM said").fetchone() == (len(CHATS),)
