"""examples/reminder_bot.py: reminders once, again and again, listed and cancelled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chatlanes.bot import Context
from chatlanes_sandbox.simulator import Simulator, start
from examples import reminder_bot
from tests.support.pipeline import TOKEN, Pipeline, message
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def pipeline(simulator: Simulator, redis_url: str, tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path, simulator, redis_url, BOT="examples.reminder_bot:bot")
    pipeline.poller()
    pipeline.worker("threads", 4)
    yield pipeline
    pipeline.close()


def texts(pipeline: Pipeline) -> list[str]:
    return [call["params"]["text"] for call in pipeline.simulator.calls("sendMessage")]


def says(pipeline: Pipeline, text: str) -> str:
    """The answer to a message."""
    before = len(texts(pipeline))
    pipeline.push(message(0, chat=7, do=text))
    pipeline.drained()
    return texts(pipeline)[before]


def test_reminders(pipeline: Pipeline) -> None:
    assert says(pipeline, "hello") == reminder_bot.HELP
    assert says(pipeline, "list") == "You have no reminders."
    assert says(pipeline, "in 10 min tea") == "I will remind you in 10 min: tea"
    assert says(pipeline, "every 2 h drink water") == "I will remind you every 2 h: drink water"
    assert [line.partition(" UTC ")[2] for line in says(pipeline, "list").splitlines()] == ["tea", "drink water"]
    assert says(pipeline, "cancel tea") == "Cancelled: tea"
    assert says(pipeline, "cancel tea") == "There is no reminder: tea"
    assert [line.partition(" UTC ")[2] for line in says(pipeline, "list").splitlines()] == ["drink water"]
    assert says(pipeline, "in 1 s milk") == "I will remind you in 1 s: milk"
    until(lambda: texts(pipeline)[-1] == "⏰ milk")
    assert says(pipeline, "every 1 s bread") == "I will remind you every 1 s: bread"
    until(lambda: texts(pipeline).count("⏰ bread") == 2)
    says(pipeline, "cancel bread")


class Recorded:
    """An Api that records its calls."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def call(self, method: str, /, **params: object) -> object:
        self.texts.append(str(params["text"]))
        return {}


def test_a_repeated_reminder_sets_the_next_one() -> None:
    api = Recorded()
    update = {"timer": {"name": "tea", "data": {"every_s": 60}, "chat": {"id": 7}}}
    ctx = Context(update, api)
    reminder_bot.bot(ctx)
    assert api.texts == ["⏰ tea"]
    assert [timer.name for timer in ctx.timers()] == ["tea"]
