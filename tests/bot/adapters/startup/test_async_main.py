"""`BOT=bot:main` with the usual form of an asyncio bot: an `async def main()` whose last line polls."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.bot.adapters.test_matrix import texts
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import chats_of, message

MODULE = "tests.bot.adapters.bots.main:"
#: Chats of each worker.
CHATS = 8
#: The chat that main() writes to.
OWNER = 999
#: Their main() sends a message before polling, and cleans up after it.
MAINS = ("main", "telebot_main", "ptb_main")


@pytest.mark.parametrize("name", [*MAINS, "factory", "plain_factory"])
def test_async_main(make_pipeline: MakePipeline, name: str) -> None:
    pools = {"prefork": 2, "threads": 8}
    pipeline = make_pipeline(QUEUES=len(pools))
    pipeline.poller()
    workers = pipeline.start_workers([(f"{MODULE}{name}", pool, slots) for pool, slots in pools.items()])
    chats = [chat for place in range(len(pools)) for chat in islice(chats_of(place, len(pools)), CHATS)]
    pipeline.push(*(message(0, chat, do="hello") for chat in chats))
    pipeline.drained()
    for worker in workers:
        worker.ask_to_stop()
    assert [worker.exit_code() for worker in workers] == [0, 0]
    assert {chat: texts(pipeline, chat) for chat in chats} == {chat: ["answer hello"] for chat in chats}
    # main() runs in each process: up to its polling at the start, and the rest at the end; its calls reach our server
    processes = pools["prefork"] + 1
    expected = processes if name in MAINS else 0
    assert texts(pipeline, OWNER) == ["started"] * expected
    assert len(pipeline.simulator.calls("setMyCommands")) == expected
    assert len(set(noted(pipeline, "closed"))) == len(noted(pipeline, "closed")) == expected
    assert len(set(noted(pipeline, "startup"))) == (expected if name == "main" else 0)
    # Calls that change how updates arrive are not sent
    assert pipeline.simulator.calls("deleteWebhook") == []


def test_calls_of_a_plain_main_reach_the_server(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(BOT=f"{MODULE}plain_main")
    pipeline.poller()
    pipeline.worker("threads", 2)
    pipeline.push(message(0, 7, do="hello"))
    pipeline.drained()
    assert texts(pipeline, 7) == ["answer hello"]
    assert texts(pipeline, OWNER) == ["started"]


@pytest.mark.parametrize(
    ("name", "why"), [("broken", "RuntimeError: no database"), ("returns_nothing", "returned None and did not poll")]
)
def test_failing_async_main_ends_the_worker(make_pipeline: MakePipeline, name: str, why: str) -> None:
    pipeline = make_pipeline(BOT=f"{MODULE}{name}")
    for worker in [pipeline.worker(pool, 1, is_awaited=False) for pool in ("prefork", "threads")]:
        assert worker.exit_code() == 1
        assert why in worker.log


def noted(pipeline, what):
    file = pipeline.directory / what
    return file.read_text().split() if file.exists() else []
