"""Calls of tasks that a handler starts and does not await: none is lost, in any pool."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import Pipeline, chats_of, message, one_chat_each
from tests.support.waiting import until

BOTS = [f"tests.bot.adapters.bots.leaving:{bot}" for bot in ("plain", "async_telebot", "aiogram", "ptb")]
POOLS = {"prefork": 2, "threads": 8}
WHEN = {"once": ["task"], "zero": ["task"], "after": ["handler", "task"], "twice": ["task", "second"]}
#: Chats of each bot.
CHATS = 10


@pytest.mark.first_only
@pytest.mark.parametrize("pool", POOLS)
def test_calls_of_unawaited_tasks_are_made(make_pipeline: MakePipeline, pool: str) -> None:
    # Given a worker with a bot of each framework
    pipeline = make_pipeline(QUEUES=len(BOTS))
    pipeline.poller()
    workers = pipeline.start_workers([(bot, pool, POOLS[pool]) for bot in BOTS])
    chats = [chat for place in range(len(BOTS)) for chat in islice(chats_of(place, len(BOTS)), CHATS)]
    pipeline.push(*(message(0, chat, do=f"{when} {chat}") for when in (*WHEN, "later") for chat in chats))
    expected = {f"{when} {chat} {which}" for when, texts in WHEN.items() for chat in chats for which in texts}
    later = {f"later {chat} task" for chat in chats}

    def logged(text: str) -> bool:
        return any(text in worker.log for worker in workers)

    # Calls made during the update, or right after it
    pipeline.drained()
    until(lambda: len(sent(pipeline)) >= len(expected) or logged("never retrieved"))
    # Calls made long after the update
    assert not logged("LeaseLost")
    pipeline.open("gate")
    until(lambda: len(sent(pipeline)) >= len(expected | later) or logged("never retrieved"))
    assert sorted(sent(pipeline)) == sorted(expected | later)
    assert not logged("LeaseLost")
    assert pipeline.dead() == []


def test_failing_handlers_keep_the_calls_of_their_tasks(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(QUEUES=len(BOTS), MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01)
    pipeline.poller()
    pipeline.start_workers([(bot, "threads", 4) for bot in BOTS])
    chats = one_chat_each(BOTS)
    pipeline.push(*(message(0, chat, do=f"fails {chat}") for chat in chats))
    pipeline.drained()
    # Made in the first run, and known to the second
    assert sorted(sent(pipeline)) == sorted(f"fails {chat} task" for chat in chats)
    assert len(pipeline.dead()) == len(BOTS)


def test_tasks_of_a_run_without_lease_send_nothing(make_pipeline: MakePipeline) -> None:
    cells = [(bot, pool, 2) for bot, pool in ((BOTS[0], "threads"), (BOTS[2], "threads"), (BOTS[2], "prefork"))]
    pipeline = make_pipeline(QUEUES=len(cells), LEASE_SECONDS=3)
    pipeline.push(*(message(0, chat, do="frozen") for chat in one_chat_each(cells)))
    pipeline.poller()
    # Given workers that are frozen in a handler for longer than their lease, and others that run their updates
    first = pipeline.start_workers(cells)
    until(lambda: noted(pipeline, "begun") == len(cells))
    for worker in first:
        worker.freeze()
    pipeline.start_workers(cells)
    pipeline.drained()
    # When they are thawed, and their handlers end
    pipeline.open("thawed")
    for worker in first:
        worker.thaw()
    # A run whose message has been settled meanwhile cannot tell whether an interrupt or a lost lease has ended it
    ends = "ignored", "succeeded", "Interrupted"
    until(lambda: all(any(end in worker.log for end in ends) for worker in first))
    pipeline.open("gate")
    # Then the calls of their handlers' tasks are refused
    until(lambda: noted(pipeline, "refused") == len(cells) or sent(pipeline))
    assert sent(pipeline) == []


def sent(pipeline: Pipeline) -> list[str]:
    return [call["params"]["text"] for call in pipeline.simulator.calls("sendMessage")]


def noted(pipeline: Pipeline, what: str) -> int:
    file = pipeline.directory / what
    return len(file.read_text().splitlines()) if file.exists() else 0
