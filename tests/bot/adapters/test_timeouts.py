"""Conversations of python-telegram-bot that end by themselves: their TIMEOUT handlers run as they do without lanes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

from celery_lanes.protocol import keys
from tests.bot.adapters.bots.jobs import NOTICES
from tests.bot.adapters.test_jobs import timers
from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.outside import outside
from tests.support.pipeline import Pipeline, message
from tests.support.process import Process
from tests.support.waiting import until

TIMEOUTS = "tests.bot.adapters.bots.timeouts"

#: Of each chat: the messages that arrive together, as user and text, and all texts in return: what the handler says,
#: the text of the update that it gets, the user, the user's count, and the job in the context.
TALKS = {
    # All handlers in TIMEOUT that accept the last update run, with the user's data
    7: (
        [(7, "talk"), (7, "again")],
        "talk: talk 7 1 None / again: again 7 2 None / "
        "over: again 7 3 None / over again: again 7 4 None / over too: again 7 5 None",
    ),
    # An update that the conversation does not handle is not the last one
    8: (
        [(8, "talk"), (8, "free")],
        "talk: talk 8 1 None / free: free 8 2 None / over: talk 8 3 None / over too: talk 8 4 None",
    ),
    # A conversation that ends, and one that begins again
    9: (
        [(9, "talk"), (9, "end"), (9, "again"), (9, "free")],
        "talk: talk 9 1 None / end: end 9 2 None / free: free 9 3 None",
    ),
    10: (
        [(10, "talk"), (10, "end"), (10, "talk")],
        "talk: talk 10 1 None / end: end 10 2 None / talk: talk 10 3 None / "
        "over: talk 10 4 None / over too: talk 10 5 None",
    ),
    # Each user in a group has a conversation
    -5: (
        [(1, "talk"), (2, "talk"), (2, "end"), (3, "talk")],
        "talk: talk 1 1 None / talk: talk 2 1 None / end: end 2 2 None / talk: talk 3 1 None / "
        "over: talk 1 2 None / over too: talk 1 3 None / over: talk 3 2 None / over too: talk 3 3 None",
    ),
    # A nested one ends before the outer one
    11: (
        [(11, "outer"), (11, "inner"), (11, "inside")],
        "outer: outer 11 1 None / inner: inner 11 2 None / inside: inside 11 3 None / "
        "inner is over: inside 11 4 None / outer is over: inside 11 5 None",
    ),
    12: (
        [(12, "outer"), (12, "inner"), (12, "leave")],
        "outer: outer 12 1 None / inner: inner 12 2 None / leave: leave 12 3 None / outer is over: leave 12 4 None",
    ),
}
#: Each message with buttons has a conversation.
PRESSED = (
    "button: pressed 1 20 1 None / button: pressed 2 20 2 None / more: x 20 3 None / "
    "unpressed: pressed 2 20 4 None / unpressed: x 20 5 None"
)


@pytest.fixture(params=["plain", "lanes"])
def running(request: pytest.FixtureRequest, make_pipeline: MakePipeline) -> Iterator[Pipeline]:
    """A bot without chatlanes, or with it."""
    pipeline = make_pipeline(BOT=f"{TIMEOUTS}:main", MAX_ATTEMPTS=1)
    if request.param == "lanes":
        pipeline.poller()
        pipeline.worker("threads", 4)
        yield pipeline
        return
    command = [sys.executable, "-m", TIMEOUTS]
    bot = Process("plain", command, pipeline.directory, pipeline.settings, inherited=outside())
    yield pipeline
    bot.end()


def say(pipeline: Pipeline, chat: int, *words: str | tuple[int, str]) -> None:
    spoken = [(chat, word) if isinstance(word, str) else word for word in words]
    pipeline.push(*(message(0, chat, None if chat > 0 else user, do=text) for user, text in spoken))


def press(pipeline: Pipeline, chat: int, message_id: int, data: str) -> None:
    asked = {**message(0, chat)["message"], "message_id": message_id, "date": 1}
    query = {"id": "1", "from": asked["from"], "chat_instance": "1", "message": asked, "data": data}
    pipeline.push({"callback_query": query})


def states(pipeline: Pipeline) -> list[bytes]:
    return list(pipeline.redis.scan_iter("*ptb:conversation:*"))


def in_any_order(answers: list[str]) -> list[str]:
    """Conversations of one chat end at about the same time. So their order, and the user's count, do not matter."""
    return sorted(answer.rsplit(" ", 2)[0] for answer in answers)


def test_timeouts(running: Pipeline) -> None:
    for chat, (spoken, _) in TALKS.items():
        say(running, chat, *spoken)
    press(running, 20, 1, "pressed 1")
    press(running, 20, 2, "pressed 2")
    press(running, 20, 1, "x")
    expected = {chat: answers.split(" / ") for chat, (_, answers) in [*TALKS.items(), (20, ([], PRESSED))]}
    until(lambda: sum(len(texts(running, chat)) for chat in expected) >= sum(map(len, expected.values())))
    # Afterwards the conversations are over
    for chat in expected:
        say(running, chat, (1, "again"), (1, "inside"), (1, "free"))
    until(lambda: all(texts(running, chat)[-1].startswith("free") for chat in expected))
    found = {chat: texts(running, chat)[:-1] for chat in expected}
    for each in (found, expected):
        for chat in (-5, 20):
            each[chat] = in_any_order(each[chat])
    assert found == expected
    # After an error, which the error handlers get with a job, the conversation is as it was
    say(running, 30, "fail")
    until(lambda: texts(running, NOTICES) == ["None _trigger_timeout a TIMEOUT handler failed"])
    say(running, 30, "go")
    until(lambda: texts(running, 30) == ["fail: fail 30 1 None", "go: go 30 2 None"])


def test_a_conversation_that_maps_its_end_to_its_parent_has_no_timeout(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=f"{TIMEOUTS}:main")
    pipeline.poller()
    pipeline.worker("threads", 4)
    say(pipeline, 7, "outer", "inner", "mapped")
    until(lambda: len(texts(pipeline, 7)) == 4)
    assert texts(pipeline, 7)[2:] == ["mapped: mapped 7 3 None", "outer is over: mapped 7 4 None"]
    # One without handlers for its end just ends
    say(pipeline, 7, "silent", "go")
    pipeline.drained()
    until(lambda: states(pipeline) == [])
    say(pipeline, 7, "go", "free")
    until(lambda: len(texts(pipeline, 7)) == 7)
    assert texts(pipeline, 7)[4:] == ["silent: silent 7 5 None", "go: go 7 6 None", "free: free 7 7 None"]
    assert timers(pipeline) == []


def test_a_conversation_of_a_user_in_all_chats(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=f"{TIMEOUTS}:main", ORDER_BY="chat+user")
    pipeline.poller()
    pipeline.worker("threads", 4)
    say(pipeline, -5, (1, "roam"))
    say(pipeline, -6, (1, "go"))
    until(lambda: len(texts(pipeline, -6)) == 2)
    assert texts(pipeline, -6) == ["go: go 1 2 None", "roamed: go 1 3 None"]
    until(lambda: timers(pipeline) == [])
    pipeline.drained()
    assert (texts(pipeline, -5), states(pipeline)) == (["roam: roam 1 1 None"], [])


def test_an_update_before_a_due_timer_moves_it(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=f"{TIMEOUTS}:main")
    pipeline.poller()
    pipeline.worker("threads", 4)
    # Given a chat whose timer joins its lane behind an update of the conversation
    say(pipeline, 7, "talk", "wait", "again")
    until(lambda: len(texts(pipeline, 7)) == 1 and len(timers(pipeline)) == 1)
    until(lambda: timers(pipeline) == [])
    # When the update is handled
    pipeline.open("gate")
    until(lambda: len(texts(pipeline, 7)) == 5)
    # Then only the new timer ends the conversation
    pipeline.drained()
    assert [text.partition(":")[0] for text in texts(pipeline, 7)] == [
        "talk",
        "again",
        "over",
        "over again",
        "over too",
    ]
    assert states(pipeline) == []


def is_recorded(pipeline: Pipeline) -> bool:
    """True if each call of the runs in progress has left its outcome."""
    journals = [pipeline.redis.hvals(key) for key in pipeline.redis.scan_iter(f"{keys.JOURNAL}*")]
    calls = [each for journal in journals for each in journal if b" " in each]
    return bool(calls) and all(each.startswith(b"done ") for each in calls)


def test_timeouts_survive_kills(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=f"{TIMEOUTS}:main", LEASE_SECONDS=4, ORDER_BY="user")
    pipeline.poller()
    worker = pipeline.worker("threads", 4)
    # Given a timer that is due while no worker runs
    say(pipeline, 7, "talk")
    until(lambda: len(timers(pipeline)) == 1)
    worker.kill_all()
    until(lambda: pipeline.redis.zrangebyscore("lanes:timers", 0, time.time() * 1000))
    # And a worker that is killed while a TIMEOUT handler runs
    worker = pipeline.worker("prefork", 2)
    say(pipeline, 8, "hold")
    until(lambda: texts(pipeline, 8)[1:] == ["holding"])
    until(lambda: is_recorded(pipeline))  # otherwise the call is in flight at the kill, and made again
    worker.kill_all()
    pipeline.worker("threads", 2)
    pipeline.open("gate")
    # Then each conversation ends once
    until(lambda: texts(pipeline, 8)[2:] == ["held"])
    pipeline.drained()
    assert [text.partition(":")[0] for text in texts(pipeline, 7)] == ["talk", "over", "over too"]
    assert texts(pipeline, 8) == ["hold: hold 8 1 None", "holding", "held"]
    assert (states(pipeline), timers(pipeline), pipeline.dead()) == ([], [], [])
