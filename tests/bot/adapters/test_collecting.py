"""Collected updates in each framework, with the examples."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_collecting import album
from tests.support.pipeline import chats_of, message

EXAMPLES = [
    "examples.album_bot:handle",
    "examples.telebot_album_bot:bot",
    "examples.aiogram_album_bot:dp",
    "examples.ptb_album_bot:application",
]


@pytest.mark.parametrize("bot", EXAMPLES)
def test_album_examples(make_pipeline: MakePipeline, bot: str) -> None:
    pipeline = make_pipeline(BOT=bot, COLLECT="messages", COLLECT_QUIET=0.3)
    pipeline.push(*album(10, 7), *(message(0, 8, do=text) for text in ("one", "two", "three")))
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert texts(pipeline, 7) == ["10 photos: look"]
    assert texts(pipeline, 8) == ["3 messages: one / two / three"]


@pytest.mark.parametrize("bot", EXAMPLES)
def test_without_collect_each_update_is_a_run(make_pipeline: MakePipeline, bot: str) -> None:
    pipeline = make_pipeline(BOT=bot)
    pipeline.push(*album(2, 7), *(message(0, 8, do=text) for text in ("one", "two")))
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert texts(pipeline, 7) == ["1 photos: look", "1 photos: "]
    assert texts(pipeline, 8) == ["1 messages: one", "1 messages: two"]


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
