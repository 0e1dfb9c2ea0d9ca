"""Collected updates in each framework, with the examples."""

from __future__ import annotations

import pytest

from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_collecting import album
from tests.support.pipeline import message

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
