"""Collected updates in each framework, with the examples; and a newer message or a stop ends the handler of each, whose
error handlers are not called.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from chatlanes.bot.adapters.collected import newest
from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_collecting import album
from tests.support.pipeline import chats_of, message
from tests.support.waiting import until

EXAMPLES = [
    "examples.album_bot:handle",
    "examples.telebot_album_bot:bot",
    "examples.aiogram_album_bot:dp",
    "examples.ptb_album_bot:application",
]


#: Settings -> the photos and messages that arrive at once, and the answers of each example.
RUNS = {
    "collected": ({"COLLECT": "messages", "COLLECT_QUIET": 0.3}, 10, ["10 photos: look"], ["2 messages: one / two"]),
    "each": ({}, 2, ["1 photos: look", "1 photos: "], ["1 messages: one", "1 messages: two"]),
}


@pytest.mark.first_only
@pytest.mark.parametrize(("settings", "photos", "of_album", "of_texts"), RUNS.values(), ids=RUNS)
def test_album_examples(
    make_pipeline: MakePipeline, settings: dict[str, Any], photos: int, of_album: list[str], of_texts: list[str]
) -> None:
    pipeline = make_pipeline(QUEUES=len(EXAMPLES), **settings)
    chats = [list(islice(chats_of(place, len(EXAMPLES)), 2)) for place in range(len(EXAMPLES))]
    for album_chat, text_chat in chats:
        pipeline.push(*album(photos, album_chat), *(message(0, text_chat, do=text) for text in ("one", "two")))
    pipeline.poller()
    pipeline.start_workers([(bot, "threads", 2) for bot in EXAMPLES])
    pipeline.drained()
    assert [[texts(pipeline, chat) for chat in each] for each in chats] == [[of_album, of_texts]] * len(EXAMPLES)


def test_the_message_that_a_handler_gets_has_the_texts_of_all(make_pipeline: MakePipeline) -> None:
    # Given bots that know nothing of COLLECT
    names = ("dp", "bot", "async_bot", "application")
    pipeline = make_pipeline(COLLECT="messages", COLLECT_QUIET=0.3, QUEUES=len(names))
    workers = pipeline.start_workers([(f"tests.bot.adapters.bots.reading:{name}", "threads", 2) for name in names])
    chats = [list(islice(chats_of(place, len(names)), 2)) for place in range(len(names))]
    bold = message(0, 0, do="is <this>")["message"] | {"entities": [{"type": "bold", "offset": 3, "length": 6}]}
    for text_chat, album_chat in chats:
        # When a user writes three messages in a row, and another one sends an album whose first photo has a caption
        pipeline.push(message(0, text_chat, do="🙂 what"))
        pipeline.push({"message": message(0, text_chat)["message"] | {k: bold[k] for k in ("text", "entities")}})
        pipeline.push(message(0, text_chat, do="?"), *album(3, album_chat))
    pipeline.poller()
    pipeline.drained()
    # Then each handler has run once, with all of it
    assert [[texts(pipeline, chat) for chat in each] for each in chats] == [
        [["🙂 what\nis <b>&lt;this&gt;</b>\n?"], ["look"]] for _ in workers
    ]


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("bot", "pool"),
    [("dp", "threads"), ("application", "threads"), ("telebot", "prefork"), ("async_telebot", "prefork")],
)
def test_a_newer_message_ends_the_run_of_a_framework(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    settings = {"COLLECT": "messages", "COLLECT_QUIET": 0.3, "INTERRUPT": "on", "MAX_ATTEMPTS": 1}
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.interruptible:{bot}", **settings)
    pipeline.poller()
    worker = pipeline.worker(pool, 2)
    # Given a run that has sent a message
    pipeline.push(message(0, 7, do="one"))
    until(lambda: (pipeline.directory / "a.reached").exists())
    # When a newer message arrives
    pipeline.push(message(0, 7, do="two"))
    until(lambda: (pipeline.directory / "b.reached").exists())
    pipeline.open("a")
    pipeline.open("b")
    pipeline.drained()
    worker.stop()
    # Then the next run has deleted it and answers both
    assert texts(pipeline, 7) == ["one moment", "one moment", "one two"]
    assert len(pipeline.simulator.calls("deleteMessage")) == 1
    assert not (pipeline.directory / "error").exists()
    assert "ERROR" not in worker.log


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("bot", "pool"),
    [("dp", "threads"), ("application", "threads"), ("telebot", "prefork"), ("async_telebot", "prefork")],
)
def test_a_stop_ends_the_run_of_a_framework(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.interruptible:{bot}", MAX_ATTEMPTS=1)
    pipeline.poller()
    worker = pipeline.worker(pool, 2)
    # Given a run that has sent a message
    pipeline.push(message(0, 7, do="one"))
    until(lambda: (pipeline.directory / "a.reached").exists())
    # When the user sends /stop
    pipeline.push(message(0, 7, do="/stop"))
    until(lambda: pipeline.count("stopped") == 1)
    pipeline.open("a")
    pipeline.drained()
    worker.stop()
    # Then the run has ended without its answer, and the framework gets the command
    assert texts(pipeline, 7) == ["one moment", "one moment", "/stop"]
    assert not (pipeline.directory / "error").exists()
    assert "ERROR" not in worker.log
    assert pipeline.dead() == []


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("bot", "pool"),
    [("dp", "threads"), ("application", "threads"), ("telebot", "prefork"), ("async_telebot", "prefork")],
)
def test_the_run_of_a_framework_takes_newer_messages(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    settings = {"COLLECT": "messages", "COLLECT_QUIET": 0.3, "INTERRUPT": "steer", "MAX_ATTEMPTS": 1}
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.steered:{bot}", **settings)
    pipeline.poller()
    pipeline.worker(pool, 2)
    # Given a run
    pipeline.push(message(0, 7, do="one"))
    until(lambda: (pipeline.directory / "a.reached").exists())
    # When newer messages arrive, it answers them
    for text in ("two", "three"):
        pipeline.push(message(0, 7, do=text))
        until(lambda text=text: texts(pipeline, 7)[-1] == f"took {text}")  # type: ignore[misc]
    # Then they have no run of their own
    pipeline.open("a")
    pipeline.drained()
    assert texts(pipeline, 7) == ["one moment", "took two", "took three"]


def test_a_rich_message_has_the_texts_of_all_beside_its_blocks() -> None:
    rich = {"blocks": [{"type": "paragraph", "text": ["I need ", {"type": "bold", "text": "bread"}]}]}
    first, last = {"message": {"text": "Hello"}}, {"message": {"rich_message": rich}}
    assert newest([first, last]) == {"message": {"rich_message": rich, "text": "Hello\nI need bread"}}
    assert newest([last]) == last
