"""The meaning of an update for the open question of its lane."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatlanes.bot.calls.questions import KIND, Meaning, Question, judge
from chatlanes.bot.context import Context

CHAT = {"id": -7, "type": "group"}


def said(text: str | None = None, user: int = 7, kind: str = "message", **more: Any) -> dict[str, Any]:
    body = {"message_id": 3, "chat": CHAT, "from": {"id": user}, **more}
    return {"update_id": 9, kind: body if text is None else {**body, "text": text}}


def pressed(data: str, user: int = 7) -> dict[str, Any]:
    message = {"message_id": 2, "chat": CHAT}
    return {"update_id": 9, "callback_query": {"id": "1", "from": {"id": user}, "message": message, "data": data}}


def late(name: str) -> dict[str, Any]:
    return {KIND: {"name": name, "chat": CHAT}}


def question(*buttons: str, user: int | None = 7) -> Question:
    return Question("5-1", "Sure?", {}, [*buttons], "pass", user, [said("go")])


CHOICE, OPEN, SENT = question("Yes", "No"), question(), question()
SENT.note_sent({"message_id": 3, "date": 1000})
SENT.note_sent({"message_id": 4, "date": 2000})  # again, as a reminder


REMIND = Question("5-1", "Sure?", {}, ["Yes", "No"], "remind", 7, [said("go")])


@pytest.mark.parametrize(
    ("asked", "update", "meaning"),
    [
        (CHOICE, pressed("chatlanes:5-1:1"), Meaning("answer", "No")),
        # Typed instead of pressed
        (CHOICE, said("Yes"), Meaning("answer", "Yes")),
        (CHOICE, said("maybe"), Meaning("unrelated")),
        (OPEN, said("to Rome"), Meaning("answer", "to Rome")),
        # A caption is a text; media without one is not an answer
        (OPEN, said(caption="this one", photo=[{"file_id": "F"}]), Meaning("answer", "this one")),
        (OPEN, said(photo=[{"file_id": "F"}]), Meaning("unrelated")),
        # A command, an edit, another person
        (OPEN, said("/help"), Meaning("unrelated")),
        # Written before the question was sent, in the same second, or after it
        (SENT, said("to Rome", date=999), Meaning("unrelated")),
        (SENT, said("to Rome", date=1000), Meaning("answer", "to Rome")),
        (SENT, said("to Rome"), Meaning("answer", "to Rome")),
        (OPEN, said("to Rome", kind="edited_message"), Meaning("unrelated")),
        (OPEN, said("to Rome", user=8), Meaning("unrelated")),
        (CHOICE, pressed("chatlanes:5-1:1", user=8), Meaning("foreign")),
        (question(user=None), said("to Rome", user=8), Meaning("answer", "to Rome")),
        # In another topic, or another chat of the same lane
        (OPEN, said("to Rome", message_thread_id=4, is_topic_message=True), Meaning("unrelated")),
        (OPEN, said("to Rome", chat={"id": -8, "type": "group"}), Meaning("unrelated")),
        # A business account, and a channel, which has no user
        (OPEN, said("to Rome", kind="business_message"), Meaning("answer", "to Rome")),
        (question(user=None), said("to Rome", kind="channel_post"), Meaning("answer", "to Rome")),
        # A group that becomes a supergroup
        (OPEN, said(migrate_to_chat_id=-1007), Meaning("closed")),
        (OPEN, said(migrate_from_chat_id=-6), Meaning("closed")),
        (OPEN, said(migrate_to_chat_id=-1007, chat={"id": -8, "type": "group"}), Meaning("unrelated")),
        (None, said(migrate_to_chat_id=-1007), Meaning("unrelated")),
        # The buttons of other questions, or of one that is closed
        (CHOICE, pressed("chatlanes:5-2:1"), Meaning("old")),
        (CHOICE, pressed("chatlanes:5-1:2"), Meaning("old")),
        (CHOICE, pressed("chatlanes:5-1:x"), Meaning("old")),
        (None, pressed("chatlanes:5-1:1"), Meaning("old")),
        # With a reminder
        (REMIND, said("Yes"), Meaning("answer", "Yes")),
        (REMIND, said("maybe"), Meaning("remind")),
        (REMIND, said(photo=[{"file_id": "F"}]), Meaning("remind")),
        (REMIND, said("maybe", user=8), Meaning("unrelated")),
        (REMIND, said("/help"), Meaning("unrelated")),
        (REMIND, said("maybe", kind="edited_message"), Meaning("unrelated")),
        # Buttons of the bot itself
        (CHOICE, pressed("mine"), Meaning("unrelated")),
        # The time is over, or was over for a question that is closed
        (OPEN, late("5-1"), Meaning("answer", None)),
        (OPEN, late("4-1"), Meaning("old")),
        (None, late("5-1"), Meaning("old")),
    ],
)
def test_what_an_update_means(asked: Question | None, update: dict[str, Any], meaning: Meaning) -> None:
    assert judge(asked, [update], Context(update, api=None).texts) == meaning  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "update", "what"),
    [
        (OPEN, said("/stop"), "closed"),
        (OPEN, said("enough", user=8), "closed"),
        (CHOICE, pressed("mine"), "closed"),
        (REMIND, said("/stop"), "closed"),
        (OPEN, said("/stop", chat={"id": -8, "type": "group"}), "unrelated"),
        (None, said("/stop"), "unrelated"),
        # A press of a button and the timeout stay what they are, whatever a user's function returns
        (CHOICE, pressed("chatlanes:5-1:1"), "answer"),
        (OPEN, late("5-1"), "answer"),
    ],
)
def test_an_update_of_control_closes_the_question(asked: Question | None, update: dict[str, Any], what: str) -> None:
    texts = Context(update, api=None).texts  # type: ignore[arg-type]
    assert judge(asked, [update], texts, is_control=True).what == what


def test_collected_messages_are_one_answer() -> None:
    assert judge(OPEN, [said("to Rome"), said("or Oslo")], ["to Rome", "or Oslo"]) == Meaning(
        "answer", "to Rome\nor Oslo"
    )


def test_a_question_is_stored_as_it_is() -> None:
    asked = Question("5-1", "half an emoji \ud83d", {"parse_mode": "HTML"}, ["Yes"], "remind", 7, [said("go")])
    asked.sent, asked.timeout_s = {"message_id": 3}, 60.0
    asked.answers, asked.calls = ["Yes", None], {"1": ["done", "sendMessage:x", {"message_id": 3}, True]}
    assert Question.of(asked.stored()) == asked
    assert Question.of(asked.stored()).recorded()["1"].outcome == {"message_id": 3}


def test_an_older_release_reads_what_a_handler_has_seen() -> None:
    asked = Question("5-1", "Sure?", {}, ["Yes"], "pass", 7, [said("go")])
    asked.seen = {"is_late": True, "previous": [[["sendMessage", {"message_id": 3}]], []]}
    assert Question.of(asked.stored()) == asked
    # It has no field for that, and takes it for the outcome of a call that no handler makes
    stored = json.loads(asked.stored())
    assert set(stored) == {*vars(asked)} - {"arrived", "seen"}
    assert not any(place[-1].isdigit() for place in stored["calls"])


def test_wrong_use_is_refused() -> None:
    ctx = Context(said("go"), api=None)  # type: ignore[arg-type]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"unrelated": "drop"}, "unrelated='drop': use 'pass' or 'remind'"),
        ({"buttons": "Yes"}, "buttons='Yes': use a list of texts"),
        ({"buttons": None}, "buttons=None: use a list of texts"),
        (
            {"buttons": ["No", "/yes"]},
            "a text that begins with / is a command, which is not an answer",
        ),
        ({"buttons": ["Yes"], "reply_markup": {}}, "give buttons or a reply_markup, not both"),
        ({"timeout": 0}, "timeout=0: use seconds above 0, at most 2592000"),
        ({"timeout": 2592001}, "timeout=2592001: use seconds above 0, at most 2592000"),
        ({"timeout": True}, "timeout=True: use seconds above 0, at most 2592000"),
        ({"timeout": None}, "timeout=None: use seconds above 0, at most 2592000"),
    ]
    for params, why in wrong:
        with pytest.raises(ValueError, match=why):
            ctx.ask("Sure?", **params)
    with pytest.raises(LookupError, match="needs an update that came through a lane"):
        ctx.ask("Sure?")
