"""ctx.ask with real workers: the handler continues when the user answers, with what it has done so far."""

from __future__ import annotations

from typing import Any

import pytest

from celery_lanes.protocol import keys
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.shown import shown
from tests.support.waiting import until

ANN = {"id": 7, "is_bot": False, "first_name": "Ann"}


def said(pipeline: Pipeline) -> list[str]:
    return [call["params"]["text"] for call in pipeline.simulator.calls("sendMessage") if call["ok"]]


def buttons(pipeline: Pipeline) -> list[str]:
    """The data of the buttons of the last message that has some."""
    found = [call["params"] for call in pipeline.simulator.calls("sendMessage") if "reply_markup" in call["params"]]
    return [row[0]["callback_data"] for row in found[-1]["reply_markup"]["inline_keyboard"]]


def interruptible(make_pipeline: MakePipeline, bot: str) -> Pipeline:
    """A running bot whose runs newer messages may interrupt."""
    pipeline = make_pipeline(
        BOT=f"tests.pipeline.asking_bot:{bot}",
        COLLECT="messages",
        COLLECT_QUIET=0.1,
        INTERRUPT="on",
        MAX_ATTEMPTS=1,
    )
    pipeline.poller()
    pipeline.worker("threads", 2)
    return pipeline


def pressed(data: str, user: int = 7) -> dict[str, Any]:
    by: dict[str, Any] = {**ANN, "id": user}
    shown = message(1, 7)["message"]
    return {"callback_query": {"id": "5", "from": by, "chat_instance": "1", "message": shown, "data": data}}


def press(pipeline: Pipeline, data: str, user: int = 7) -> None:
    pipeline.push(pressed(data, user))
    pipeline.drained()


def kept(pipeline: Pipeline) -> list[bytes]:
    """The keys of open questions."""
    found = [
        *pipeline.redis.keys("asked:*"),
        *pipeline.redis.keys("answers:*"),
        *pipeline.redis.keys(keys.NOTES),
        *pipeline.redis.keys(keys.TIMERS),
    ]
    return sorted(found)


@pytest.mark.parametrize("bot", ["plain", "telebot", "aiogram", "ptb"])
def test_a_handler_continues_with_the_answer(make_pipeline: MakePipeline, bot: str) -> None:
    pipeline = make_pipeline(BOT=f"tests.pipeline.asking_bot:{bot}", LEASE_SECONDS=2)
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    # Given a bot that has asked
    [bought] = pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    assert said(pipeline) == ["one moment", "Sure?"]
    # When another worker takes over, and the user presses a button, twice
    worker.kill_all()
    pipeline.worker("threads", 2)
    yes, _ = buttons(pipeline)
    press(pipeline, yes)
    press(pipeline, yes)
    assert said(pipeline) == ["one moment", "Sure?", "Where to?"]
    pipeline.push(message(0, 7, 7, do="Rome"))
    pipeline.drained()
    # Then the handler has continued once for each answer, and paid once
    assert said(pipeline)[3:] == [f"buy {BOT_ID}:{bought}/price/1: Yes, Rome"]
    assert len([event for event in pipeline.history if event.what == "priced"]) == 1
    assert len(pipeline.simulator.calls("answerCallbackQuery")) == 2
    assert len(pipeline.simulator.calls("editMessageReplyMarkup")) == 2
    assert pipeline.dead() == []
    if bot in ("plain", "telebot"):
        assert pipeline.session(7) == {"runs": 1}
    assert pipeline.leftovers() == []


def test_a_worker_that_dies_after_the_answer_repeats_nothing(make_pipeline: MakePipeline) -> None:
    # Given a bot whose second question was repeated after a photo, and then answered; its worker dies after that
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:plain", LEASE_SECONDS=2)
    pipeline.poller()
    worker = pipeline.worker("prefork", 2)
    [bought] = pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    press(pipeline, buttons(pipeline)[0])
    photo = message(0, 7, 7)
    photo["message"] = {**photo["message"], "text": None, "photo": [{"file_id": "F"}]}
    pipeline.push(photo)
    pipeline.drained()
    assert said(pipeline) == ["one moment", "Sure?", "Where to?", "Where to?"]
    pipeline.push(message(0, 7, 7, do="hold"))
    until(lambda: any(event.what == "at-hold" for event in pipeline.history))
    worker.kill_all()
    pipeline.worker("prefork", 2)
    pipeline.drained()
    # Then the next run has the same answers, and repeats no call and no step
    assert said(pipeline)[4:] == ["held", f"buy {BOT_ID}:{bought}/price/1: Yes, hold"]
    assert [event.what for event in pipeline.history].count("priced") == 1
    # And the question is closed: what follows goes to the bot
    pipeline.push(message(0, 7, 7, do="thanks"))
    pipeline.drained()
    assert said(pipeline)[-1] == "heard thanks"
    assert pipeline.dead() == []
    assert pipeline.leftovers() == []


@pytest.mark.parametrize(("pressed", "says"), [(0, "paid"), (1, "not paid")])
def test_the_next_answer_gets_what_a_buried_one_has_paid(make_pipeline: MakePipeline, pressed: int, says: str) -> None:
    # Given an answer that has paid, and is buried because Telegram refuses what follows
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:paying", MAX_ATTEMPTS=1)
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    pipeline.simulator.fault(method="sendMessage", status=400)
    press(pipeline, buttons(pipeline)[0])
    assert len(pipeline.dead()) == 1
    # When the user presses a button again
    press(pipeline, buttons(pipeline)[pressed])
    # Then that answer continues the question, and does not pay again
    assert said(pipeline)[-1].startswith(says)
    assert [event.what for event in pipeline.history].count("priced") == 1
    assert kept(pipeline) == []


def test_a_handler_that_continues_asks_its_model_for_nothing_again(make_pipeline: MakePipeline) -> None:
    # Given a bot that has streamed the answer of a model, and asked
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:streaming")
    pipeline.poller()
    pipeline.worker("threads", 2)
    [bought] = pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    thought = said(pipeline)[0]
    # When it continues
    press(pipeline, buttons(pipeline)[0])
    # Then nothing before the question happens again
    assert said(pipeline) == [thought, "one moment", "Sure?", f"buy {BOT_ID}:{bought}/price/1: Yes, nowhere"]
    assert pipeline.simulator.calls("editMessageText") == []
    assert [event.what for event in pipeline.history].count("asked-model") == 1
    assert [event.what for event in pipeline.history].count("priced") == 1
    assert pipeline.leftovers() == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_text_that_is_written_again_is_complete_again(make_pipeline: MakePipeline, dies: bool) -> None:
    # Given a bot that has streamed a text, and asked
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:slow", LEASE_SECONDS=2)
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    before = shown(pipeline.simulator, 7)
    assert before == {1: "It is a long way to Rome, and back.", 2: "Sure?"}
    # When it continues, and writes the text again, perhaps in two runs
    pipeline.push(message(0, 7, 7, do="Yes"))
    if dies:
        until(lambda: shown(pipeline.simulator, 7)[1] == "It is a long way to Rome, and")
        worker.kill_all()
        pipeline.worker("threads", 2)
    pipeline.drained()
    # Then all of it is shown
    assert shown(pipeline.simulator, 7) == {**before, 3: "Yes, nowhere"}


def test_a_call_that_differs_repeats_no_step(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:changing")
    pipeline.poller()
    pipeline.worker("threads", 2)
    # Given a question after a text that is another one in each run, and a step
    [bought] = pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    press(pipeline, buttons(pipeline)[0])
    # Then the text and the question are sent again, and the step is not paid again
    assert len(said(pipeline)) == 5
    assert said(pipeline)[-1] == f"buy {BOT_ID}:{bought}/price/1: Yes, nowhere"
    assert [event.what for event in pipeline.history].count("priced") == 1


def test_a_deletion_before_the_question_is_not_repeated(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, "tidy")
    # Given a question of a run that may be interrupted, answered by a button, whose run may not; and the reverse
    pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    press(pipeline, buttons(pipeline)[0])
    press(pipeline, "of the bot")
    pipeline.push(message(0, 7, 7, do="Yes"))
    pipeline.drained()
    # Then both continue
    assert said(pipeline) == ["one moment", "Sure?", "it is Yes"] * 2
    assert len(pipeline.simulator.calls("deleteMessage")) == 2
    assert pipeline.dead() == []


def test_the_steps_after_an_interrupted_answer_are_others(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, "booking")
    # Given an answer that was paid for, and that the user extends
    [bought] = pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    pipeline.push(message(0, 7, 7, do="poll"))
    until(lambda: any(event.what == "at-poll" for event in pipeline.history))
    [extended] = pipeline.push(message(0, 7, 7, do="Paris"))
    pipeline.drained()
    # Then the whole answer is paid for with a key of its own
    assert said(pipeline) == ["Where to?", f"{BOT_ID}:{bought}-{extended}/price/1: poll\nParis"]
    assert kept(pipeline) == []


def test_the_text_of_a_button_stays_the_answer(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, "deciding")
    # Given an answer that is a button's text, for which the handler has paid
    [bought] = pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    pipeline.push(message(0, 7, 7, do="Yes"))
    until(lambda: any(event.what == "priced" for event in pipeline.history))
    # When the user writes more
    pipeline.push(message(0, 7, 7, do="thanks a lot"))
    pipeline.drained()
    # Then that waits for the end of the run
    assert said(pipeline)[1:] == [f"{BOT_ID}:{bought}/price/1: Yes", "heard thanks a lot"]
    assert [event.what for event in pipeline.history].count("priced") == 1
    assert kept(pipeline) == pipeline.dead() == []


def test_calls_of_interrupted_runs_are_the_same_after_the_answer(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, "cleaning")
    # Given a run that was interrupted, and the next one, which deletes what that has sent, and asks
    pipeline.push(message(0, 7, 7, do="poll"))
    until(lambda: any(event.what == "at-poll" for event in pipeline.history))
    pipeline.push(message(0, 7, 7, do="more"))
    pipeline.drained()
    # When the answer to its second question is interrupted, too
    press(pipeline, buttons(pipeline)[0])
    pipeline.push(message(0, 7, 7, do="poll"))
    until(lambda: [event.what for event in pipeline.history].count("at-poll") == 2)
    pipeline.push(message(0, 7, 7, do="Paris"))
    pipeline.drained()
    # Then nothing is sent or deleted again before the question, and behind it the answer's calls are deleted
    assert said(pipeline) == ["looking", "looking", "Sure?", "Where to?", "to poll", "to poll\nParis"]
    assert len(pipeline.simulator.calls("deleteMessage")) == 2
    assert kept(pipeline) == pipeline.dead() == []


def test_an_answer_that_nobody_takes_is_not_lost(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:stateful", MAX_ATTEMPTS=1)
    pipeline.poller()
    pipeline.worker("threads", 2)
    # Given a question, and a state that leads its update to another handler
    pipeline.push(message(0, 7, 7, do="buy"), message(0, 7, 7, do="/form"))
    pipeline.drained()
    press(pipeline, buttons(pipeline)[0])
    # Then the answer is buried, which says why, and the question stays open
    [dead] = pipeline.dead()
    assert "has reached no ctx.ask" in pipeline.problems(dead)[-1]["message"]
    # And it continues the handler when the state is over
    pipeline.push(message(0, 7, 7, do="/end"))
    pipeline.drained()
    press(pipeline, buttons(pipeline)[0])
    assert said(pipeline)[-1] == "bought: Yes"


def test_an_answer_is_never_stale(make_pipeline: MakePipeline) -> None:
    # Given a button that was pressed an hour ago, when no worker ran
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:paying", STALE="skip", LEASE_SECONDS=2)
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    worker.kill_all()
    [press] = pipeline.push(pressed(buttons(pipeline)[0]))
    until(lambda: pipeline.count("appended") == 2)
    pipeline.redis.hincrby(keys.message(f"{BOT_ID}:{press}"), "seq", -3_600_000_000)
    # When a worker starts
    pipeline.worker("threads", 2)
    pipeline.drained()
    # Then the handler continues, though Telegram no longer accepts an answer to the press itself
    assert said(pipeline)[-1].startswith("paid")


def test_on_limited_continues_with_its_answer(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(
        BOT="tests.pipeline.asking_bot:limited", USER_RATE="1/3600", USER_RATE_OVER="answer", MAX_ATTEMPTS=1
    )
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, 7, do="one"), message(0, 7, 7, do="two"))
    pipeline.drained()
    pipeline.redis.delete(*pipeline.redis.keys(f"{keys.RATE}*"))  # an hour later
    press(pipeline, buttons(pipeline)[0])
    assert said(pipeline) == ["heard one", "Wait?", "two waits: Yes"]
    assert pipeline.dead() == []


def test_a_reminder_takes_the_buttons(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:deciding", MAX_ATTEMPTS=1)
    pipeline.poller()
    pipeline.worker("threads", 2)
    # Given a question that was sent three times, because the user has written something else
    pipeline.push(message(0, 7, 7, do="buy"), message(0, 7, 7, do="hm"), message(0, 7, 7, do="well"))
    pipeline.drained()
    # When the user presses a button
    press(pipeline, buttons(pipeline)[1])
    # Then no message has buttons any more
    asked = [call["result"]["message_id"] for call in pipeline.simulator.calls("sendMessage")][:3]
    edited = [call["params"]["message_id"] for call in pipeline.simulator.calls("editMessageReplyMarkup")]
    assert said(pipeline)[:3] == ["Sure?"] * 3
    assert edited == asked
    assert said(pipeline)[-1].endswith(": No")
    assert kept(pipeline) == pipeline.dead() == []


def test_only_the_open_question_of_the_asked_user_continues(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:careful", MAX_ATTEMPTS=1)
    pipeline.poller()
    pipeline.worker("threads", 2)
    # Given a question of which another user presses the button
    pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    first, _ = buttons(pipeline)
    press(pipeline, first, user=8)
    [refused] = pipeline.simulator.calls("answerCallbackQuery")
    assert refused["params"]["text"] == "This question is for somebody else."
    # When the chat gets another question
    pipeline.push(message(0, 7, 7, do="buy a car"))
    pipeline.drained()
    second, no = buttons(pipeline)
    # Then the first one is closed, and the second continues
    press(pipeline, first)
    assert said(pipeline) == ["one moment", "Sure?"] * 2
    press(pipeline, no)
    assert said(pipeline)[-1].startswith("buy a car ")
    assert said(pipeline)[-1].endswith(": No, nowhere")
    # And a hook cannot ask
    pipeline.push(message(0, 7, 7, do="fail"))
    pipeline.drained()
    assert said(pipeline)[-1] == "ctx.ask works in a handler, not in a hook or in the handler of a broadcast"
    assert first != second


def test_other_updates_and_the_timeout(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:plain")
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, 7, do="buy soon"))
    until(lambda: "Sure?" in said(pipeline))
    # An unrelated message goes to the bot
    pipeline.push(message(0, 7, 7, do="hello"))
    until(lambda: "heard hello" in said(pipeline))
    # Nobody has answered
    until(lambda: any("too late, nowhere" in each for each in said(pipeline)))
    pipeline.drained()
    # An old button does nothing
    press(pipeline, buttons(pipeline)[0])
    assert len(said(pipeline)) == 4
    assert pipeline.dead() == []
    assert pipeline.leftovers() == []


def test_an_update_of_control_closes_the_question(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:plain")
    pipeline.poller()
    pipeline.worker("threads", 2)
    # Given an open question with buttons
    pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    # When the user sends /stop
    pipeline.push(message(0, 7, 7, do="/stop"))
    pipeline.drained()
    # Then the bot gets it, the buttons are removed, and the handler does not continue
    assert said(pipeline)[2:] == ["heard /stop"]
    [edit] = pipeline.simulator.calls("editMessageReplyMarkup")
    assert edit["params"]["message_id"]
    assert kept(pipeline) == []
    press(pipeline, buttons(pipeline)[0])
    assert said(pipeline)[2:] == ["heard /stop"]
    assert pipeline.dead() == pipeline.leftovers() == []


def test_a_stopped_answer_closes_its_question(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:plain", MAX_ATTEMPTS=1)
    pipeline.poller()
    pipeline.worker("threads", 2)
    # Given a handler that has continued with an answer, and a message behind it
    pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    press(pipeline, buttons(pipeline)[0])
    pipeline.push(message(0, 7, 7, do="poll"))
    until(lambda: any(event.what == "at-poll" for event in pipeline.history))
    pipeline.push(message(0, 7, 7, do="Oslo"))
    # When the user stops it
    pipeline.push(message(0, 7, 7, do="/stop"))
    pipeline.drained()
    # Then the message behind it is not an answer
    assert said(pipeline)[3:] == ["heard Oslo", "heard /stop"]
    assert kept(pipeline) == []
    assert pipeline.count("stopped") == 1
    assert pipeline.dead() == pipeline.leftovers() == []


def test_a_group_that_becomes_a_supergroup_closes_its_question(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:plain")
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, -7, 7, do="buy"))
    pipeline.drained()
    moved = message(0, -7, 7)["message"]
    del moved["text"]
    pipeline.push({"message": {**moved, "migrate_to_chat_id": -1_000_000_000_007}})
    pipeline.drained()
    assert kept(pipeline) == []
    assert pipeline.dead() == pipeline.leftovers() == []


def test_a_question_that_cannot_be_read_loses_no_update(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT="tests.pipeline.asking_bot:plain")
    pipeline.poller()
    worker = pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, 7, do="buy"))
    pipeline.drained()
    [key] = pipeline.redis.keys("asked:*")
    pipeline.redis.set(key, '{"of": "a newer release"}')
    pipeline.push(message(0, 7, 7, do="Yes"))
    pipeline.drained()
    assert said(pipeline)[-1] == "heard Yes"
    assert "cannot be read; this update goes to the bot" in worker.log
    assert pipeline.dead() == []
