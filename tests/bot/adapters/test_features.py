"""Features of the frameworks beyond answering in a handler, through real workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bot.adapters.bots.script import GREETING, QUESTION
from tests.bot.adapters.test_matrix import BOTS, texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until

PTB = "tests.bot.adapters.bots.features.ptb:"
AIOGRAM = "tests.bot.adapters.bots.features.aiogram:main"


def test_python_telegram_bot(make_pipeline: MakePipeline) -> None:
    # Given a worker, and an update for each step and each feature
    pipeline = make_pipeline(BOT=f"{PTB}application", MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01, LEASE_SECONDS=4)
    pipeline.poller()
    for step in ("start", "in", "out", "end", "send", "edit", "button", "task", "download"):
        pipeline.push(message(0, 7, do=step))
    first = pipeline.worker("threads", 4)
    pipeline.drained()
    # Then nested conversations continued with their counters, and tasks ended before the next update
    said = [f"{text} {number}  from {first.name}" for number, text in enumerate(STEPS, start=1)]
    rest = ["kept", "a button", "sorry", "the handler", "the task", "sorry", "the content of F1\n"]
    assert texts(pipeline, 7) == [*said, *rest]
    assert [call["params"]["text"] for call in pipeline.simulator.calls("editMessageText")] == ["edited"]
    assert pipeline.dead() == []
    # And a worker that slept longer than its lease sends and stores nothing when it wakes
    [frozen] = pipeline.push(message(0, 8, do="freeze"))
    until(lambda: (pipeline.directory / "begun").exists())
    first.freeze()
    pipeline.worker("threads", 2)
    pipeline.drained()
    (pipeline.directory / "thawed").touch()
    first.thaw()
    until(lambda: (pipeline.directory / "raised").exists())
    assert (pipeline.directory / "raised").read_text() == "LeaseLost"
    # And polling in a hook did nothing
    assert "start_polling in " in first.log
    # And the other worker knows the data of a button
    first.stop()
    [sent] = [call["params"] for call in pipeline.simulator.calls("sendMessage") if "reply_markup" in call["params"]]
    press = {"id": "5", "from": ANN, "chat_instance": "1", "message": message(1, 7)["message"]}
    pipeline.push({"callback_query": {**press, "data": sent["reply_markup"]["inline_keyboard"][0][0]["callback_data"]}})
    pipeline.drained()
    [answered] = pipeline.simulator.calls("answerCallbackQuery")
    assert answered["params"]["text"] == "{'pressed': (1, <Step.NAME: 1>)}"
    assert texts(pipeline, 8) == ["before", "attempt 2"]
    assert pipeline.state_of(frozen) is None


def test_clear_callback_data_clears_the_buttons_of_its_chat(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=f"{PTB}application", RETRY_BACKOFF=0.01)
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, do="button"), message(0, 8, do="button"), message(0, 7, do="clear"))
    pipeline.drained()
    sent = [call["params"] for call in pipeline.simulator.calls("sendMessage") if "reply_markup" in call["params"]]
    data = {
        (each["text"], each["chat_id"]): each["reply_markup"]["inline_keyboard"][0][0]["callback_data"] for each in sent
    }
    answers = {}
    for button in [("a button", 7), ("a button", 8), ("cleared", 7)]:
        press = {"id": "5", "from": ANN, "chat_instance": "1", "message": message(1, button[1])["message"]}
        pipeline.push({"callback_query": {**press, "data": data[button]}})
        pipeline.drained()
        answers[button] = pipeline.simulator.calls("answerCallbackQuery")[-1]["params"]["text"].partition("(")[0]
    assert answers == {
        ("a button", 7): "The object belonging to this callback_data was deleted or the callback_data was manipulated.",
        ("a button", 8): "{'pressed': ",
        ("cleared", 7): "after",
    }


ANN = {"id": 7, "is_bot": False, "first_name": "Ann"}
STEPS = ("started", "inside", "leaving", "ended")


def test_aiogram(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=AIOGRAM, ORDER_BY="chat+user", FLOOD_WAIT=0, MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    # Given a flood wait during a handler whose first attempt fails
    pipeline.simulator.fault(method="sendMessage")
    pipeline.simulator.fault(method="sendMessage", status=429, retry_after=1)
    pipeline.push(*(message(0, 7, do=each) for each in ("types", "handled", "downloads", "keeps", "leaves")))
    pipeline.push(message(0, -5, user=7, do="edits"))
    pipeline.poller()
    worker = pipeline.worker("threads", 4)
    pipeline.drained()
    until(lambda: "after the update" in texts(pipeline, 7))
    # Then no message was sent twice, the wait did not count as an attempt, and the user's state is shared by all chats
    sent = [call["params"]["text"] for call in pipeline.simulator.calls("sendMessage") if call["ok"]]
    assert sent == ["one", "two", "handled", "the content of F1\n", "kept", "in the update", "after the update"]
    assert [call["params"]["text"] for call in pipeline.simulator.calls("editMessageText")] == ["edited keeps"]
    assert pipeline.dead() == []
    # And calls that change how updates arrive were not sent
    assert pipeline.simulator.calls("deleteWebhook") == []
    assert "deleteWebhook is not sent" in worker.log


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_bot_that_cannot_start_ends_the_worker(make_pipeline: MakePipeline, pool: str) -> None:
    pipeline = make_pipeline(BOT=f"{PTB}broken", MAX_ATTEMPTS=1)
    pipeline.push(message(0, 7))
    pipeline.poller()
    worker = pipeline.worker(pool, 1, is_awaited=False)
    assert worker.exit_code() == 1
    assert f"BOT={PTB}broken: its start-up failed" in worker.log
    assert "RuntimeError: no database" in worker.log
    # And its update is unchanged
    until(lambda: pipeline.pending() == 1)
    assert pipeline.dead() == []


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


@pytest.mark.first_only
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
