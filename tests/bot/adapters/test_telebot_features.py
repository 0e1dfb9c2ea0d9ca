"""Features of pyTelegramBotAPI beyond sending, and modules that make calls during their import."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bot.adapters.bots.script import GREETING, QUESTION
from tests.bot.adapters.test_matrix import BOTS, texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until

#: A 429 that is waited for in the handler, and one that parks the update.
SHORT, LONG = {"status": 429, "retry_after": 1}, {"status": 429, "retry_after": 3}


def test_telebot_features_work_in_any_process(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(
        BOT="tests.bot.adapters.bots.features.telebot:bot", MAX_ATTEMPTS=2, RETRY_BACKOFF=0, FLOOD_WAIT=2
    )
    pipeline.poller()
    worker = pipeline.worker("prefork", 3)
    for chat, fault in ((31, SHORT), (32, LONG)):
        pipeline.simulator.fault(method="sendMessage", chat_id=chat, **fault)
    pipeline.simulator.push(inline_query(14))
    *_, failing = pipeline.push(
        *(said(chat, "/buy") for chat in (7, 31, 32)),
        said(7, "Main Street"),
        in_topic(3, "order"),
        in_topic(4, "order"),
        in_topic(4, "small"),
        in_topic(3, "large"),
        said(11, document={"file_id": "abc", "file_unique_id": "u"}),
        said(12, "polls"),
        said(13, "fails, harmless"),
        said(15, "fails"),
    )
    pipeline.drained()
    # Next steps: one with a message as an argument, one that is a method of an object
    assert texts(pipeline, 7) == ["Ann, your street?", "Ann: /buy, Main Street"]
    pipeline.push(said(7, "yes", reply_to_message={**said(7, "/buy")["message"], "message_id": 1}))
    pipeline.drained()
    assert texts(pipeline, 7)[2:] == ["replied yes"]
    # States of topics
    assert texts(pipeline, -5) == ["small tea", "large tea"]
    # Downloads, a default parse mode, inline queries
    assert texts(pipeline, 11) == ["the content of abc\n"]
    assert {call["params"].get("parse_mode") for call in pipeline.simulator.calls("sendMessage")} == {"HTML"}
    assert len(pipeline.simulator.calls("answerInlineQuery")) == 1
    # Errors that the exception handler accepts are not failures; others are, and it is called in each attempt
    assert texts(pipeline, 13) == ["heard of fails, harmless", "after fails, harmless"]
    assert pipeline.dead() == [f"{BOT_ID}:{failing}"]
    assert texts(pipeline, 15) == ["heard of fails", "after fails"]
    # Flood waits
    assert [arrived(pipeline, chat) for chat in (31, 32)] == [["Ann, your street?"]] * 2
    assert pipeline.count("parked") == 1
    # The module was imported once, before the children were forked; its calls went to BOT_API_URL
    assert len((pipeline.directory / "import").read_text().split()) == 1
    assert len(pipeline.simulator.calls("setMyCommands")) == 1
    assert pipeline.simulator.calls("setWebhook") == []
    assert "its import started 1 thread (janitor)" in worker.log
    assert "set_webhook in " in worker.log
    assert "these options are ignored (docs/migrate/pytelegrambotapi.md): apihelper.proxy" in worker.log
    # Polling in a thread is logged and returns
    assert texts(pipeline, 12) == ["continues"]
    assert "infinity_polling in a thread does nothing" in worker.log


def test_async_telebot_features_work(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.bot.adapters.bots.features.async_telebot:bot", MAX_ATTEMPTS=2, RETRY_BACKOFF=0)
    pipeline.poller()
    pipeline.worker("threads", 10)
    pipeline.simulator.fault(method="sendMessage", chat_id=8, **SHORT)
    pipeline.simulator.push(inline_query(14))
    *_, failing = pipeline.push(
        said(7, "hi"),
        said(7, "skip"),
        said(8, "hi"),
        said(11, document={"file_id": "abc", "file_unique_id": "u"}),
        said(15, "fails"),
    )
    pipeline.drained()
    # Update listeners are awaited: their messages precede the next update
    assert sorted(texts(pipeline, 7)[:2]) == ["answer", "simulated_bot heard hi"]
    assert sorted(texts(pipeline, 7)[2:]) == ["simulated_bot heard skip", "skipped"]
    assert sorted(arrived(pipeline, 8)) == ["answer", "simulated_bot heard hi"]
    assert "the content of abc\n" in texts(pipeline, 11)
    assert len(pipeline.simulator.calls("answerInlineQuery")) == 1
    assert pipeline.dead() == [f"{BOT_ID}:{failing}"]


@pytest.mark.parametrize("order_by", ["user", "topic"])
def test_steps_work_with_any_order(make_pipeline: MakePipeline, order_by: str) -> None:
    pipeline = make_pipeline(BOT=BOTS["telebot"], ORDER_BY=order_by)
    pipeline.poller()
    worker = pipeline.worker("threads", 4)
    pipeline.push(in_topic(3, "ask"), in_topic(3, "Ann"), said(7, "ask"), said(7, "Ann"))
    pipeline.drained()
    for chat in (-5, 7):
        assert texts(pipeline, chat) == [QUESTION, f"{GREETING} Ann from {worker.name}"]


@pytest.mark.parametrize("name", ["telebot", "async-telebot"])
def test_calls_of_a_thawed_worker_are_not_sent(make_pipeline: MakePipeline, name: str) -> None:
    # Given a worker that is frozen in a handler for longer than its lease, and another worker that runs the update
    pipeline = make_pipeline(BOT=BOTS[name], LEASE_SECONDS=3)
    pipeline.poller()
    frozen = pipeline.worker("threads", 2)
    [update] = pipeline.push(message(1, 7, do="waits"))
    pipeline.started(update)
    frozen.freeze()
    pipeline.worker("threads", 2)
    until(lambda: pipeline.happened("start") == [update, update])
    pipeline.open("gate")
    pipeline.drained()
    # When it is thawed and its handler continues
    frozen.thaw()
    # Then it logs the loss at the renewal, the handler's call, or the settle, whichever happens first
    texts_of_loss = f"the lease of {BOT_ID}:{update}", f"other workers may run them again: {BOT_ID}:{update}"
    until(lambda: any(text in frozen.log for text in texts_of_loss))
    # And nothing is sent twice, and the worker still runs
    frozen.stop()
    assert pipeline.simulator.answers() == {7: [1]}
    assert pipeline.dead() == []


def arrived(pipeline: Pipeline, chat: int) -> list[str]:
    calls = pipeline.simulator.calls("sendMessage")
    return [call["params"]["text"] for call in calls if str(call["params"]["chat_id"]) == str(chat) and call["ok"]]


def said(chat: int, text: str = "", **more: Any) -> dict[str, Any]:
    update = message(0, chat, user=9 if chat < 0 else None, do=text)
    update["message"] |= {"message_id": 1, **more}
    if text.startswith("/"):
        update["message"]["entities"] = [{"type": "bot_command", "offset": 0, "length": len(text)}]
    return update


def in_topic(topic: int, text: str) -> dict[str, Any]:
    return said(-5, text, message_thread_id=topic, is_topic_message=True)


def inline_query(user: int) -> dict[str, Any]:
    who = {"id": user, "is_bot": False, "first_name": "Ann"}
    return {"inline_query": {"id": "5", "from": who, "query": "tea", "offset": ""}}
