"""Features of the frameworks beyond answering in a handler, through real workers."""

from __future__ import annotations

import pytest

from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import message
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
