"""A newer message interrupts the handler of each framework, whose error handlers are not called."""

from __future__ import annotations

import pytest

from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import message
from tests.support.waiting import until

BOTS = ["dp", "application", "telebot", "async_telebot"]


@pytest.mark.parametrize(
    ("bot", "pool"), [*((bot, "threads") for bot in BOTS), ("telebot", "prefork"), ("async_telebot", "prefork")]
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
