"""Calls of tasks that a handler starts and does not await: none is lost, in any pool."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import Pipeline, message
from tests.support.waiting import until

BOTS = {"plain": "handle", "async-telebot": "bot", "aiogram": "dp", "ptb": "application"}
POOLS = {"prefork": 2, "threads": 8, "solo": 1}
WHEN = {"once": ["task"], "zero": ["task"], "after": ["handler", "task"], "twice": ["task", "second"]}
CHATS = range(1, 11)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("name", BOTS)
def test_calls_of_unawaited_tasks_are_made(make_pipeline: MakePipeline, name: str, pool: str) -> None:
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.leaving:{BOTS[name]}")
    pipeline.poller()
    worker = pipeline.worker(pool, POOLS[pool])
    pipeline.push(*(message(0, chat, do=f"{when} {chat}") for when in (*WHEN, "later") for chat in CHATS))
    expected = {f"{when} {chat} {which}" for when, texts in WHEN.items() for chat in CHATS for which in texts}
    later = {f"later {chat} task" for chat in CHATS}
    # Calls made during the update, or right after it
    pipeline.drained()
    until(lambda: len(sent(pipeline)) >= len(expected) or "never retrieved" in worker.log)
    # Calls made long after the update
    assert "LeaseLost" not in worker.log
    pipeline.open("gate")
    until(lambda: len(sent(pipeline)) >= len(expected | later) or "never retrieved" in worker.log)
    assert sorted(sent(pipeline)) == sorted(expected | later)
    assert "LeaseLost" not in worker.log
    assert pipeline.dead() == []


@pytest.mark.parametrize("name", BOTS)
def test_failing_handler_keeps_the_calls_of_its_task(make_pipeline: MakePipeline, name: str) -> None:
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.leaving:{BOTS[name]}", MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    pipeline.poller()
    pipeline.worker("threads", 4)
    pipeline.push(message(0, 7, do="fails"))
    pipeline.drained()
    # Made in the first run, and known to the second
    assert sent(pipeline) == ["fails task"]
    assert len(pipeline.dead()) == 1


@pytest.mark.parametrize(("name", "pool"), [("plain", "threads"), ("aiogram", "threads"), ("aiogram", "prefork")])
def test_task_of_a_run_without_lease_sends_nothing(make_pipeline: MakePipeline, name: str, pool: str) -> None:
    pipeline = make_pipeline(BOT=f"tests.bot.adapters.bots.leaving:{BOTS[name]}", LEASE_SECONDS=3)
    pipeline.poller()
    first = pipeline.worker(pool, 2)
    pipeline.push(message(0, 7, do="frozen"))
    until(lambda: (pipeline.directory / "begun").exists())
    # Given a worker that is frozen in a handler for longer than its lease, and another worker that runs its update
    first.freeze()
    pipeline.worker(pool, 2)
    pipeline.drained()
    # When it is thawed
    pipeline.open("thawed")
    first.thaw()
    pipeline.open("gate")
    # Then the call of its handler's task is refused
    until(lambda: (pipeline.directory / "refused").exists())
    assert sent(pipeline) == []


def sent(pipeline: Pipeline) -> list[str]:
    return [call["params"]["text"] for call in pipeline.simulator.calls("sendMessage")]
