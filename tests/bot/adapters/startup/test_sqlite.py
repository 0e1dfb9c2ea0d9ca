"""A database that a bot with coroutines opens at import, in another thread than its handlers."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import message

CHATS = range(1, 21)


@pytest.mark.parametrize(
    ("name", "pool", "slots"),
    [
        ("dp", "threads", 8),
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
