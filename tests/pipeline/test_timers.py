"""Timers of a bot, through the whole pipeline: set in the step that settles the update, and run once when due."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import Pipeline, message
from tests.support.waiting import until

BOT = "tests.support.timer_bot:bot"
COROUTINES = "tests.support.timer_bot:coroutines"


def noted(pipeline: Pipeline, what: str) -> list[dict[str, Any]]:
    """What the bot has recorded, oldest first."""
    file = pipeline.directory / "timers"
    events = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [event for event in events if event["what"] == what]


def names(pipeline: Pipeline, what: str = "ran") -> list[str]:
    return [event["name"] for event in noted(pipeline, what)]


def texts(pipeline: Pipeline) -> list[str]:
    return [call["params"]["text"] for call in pipeline.simulator.calls("sendMessage")]


@pytest.mark.parametrize(
    ("bot", "pool", "fast"),
    [(BOT, "prefork", 1), (BOT, "threads", 1), (BOT, "gevent", 1), (COROUTINES, "threads", 1), (BOT, "threads", 0)],
)
def test_a_timer_runs_once_when_it_is_due(make_pipeline: MakePipeline, bot: str, pool: str, fast: int) -> None:
    # Given a bot with timers
    pipeline = make_pipeline(BOT=bot, FAST=fast)
    pipeline.worker(pool, 2)
    pipeline.poller()
    # When a message sets two, the second of which sets a third
    pipeline.push(message(1, chat=7, do="later:b_600_later_c_100 later:a_300 show:all"))
    until(lambda: len(noted(pipeline, "ran")) == 3)
    pipeline.drained()
    # Then each has run once, in the order of their times, and with its session
    assert names(pipeline) == ["a", "b", "c"]
    assert noted(pipeline, "shown")[0]["names"] == ["a", "b"]
    assert pipeline.session(7) == {"fired": ["a", "b", "c"]}
    assert [event["chat"] for event in noted(pipeline, "timer")] == [7, 7, 7]
    assert all(0 <= event["late_s"] < 5 for event in noted(pipeline, "timer"))
    assert texts(pipeline) == ["a is due", "b is due", "c is due"]
    assert pipeline.leftovers() == []
