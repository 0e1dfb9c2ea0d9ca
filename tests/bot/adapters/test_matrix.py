"""Every framework and every pool, with the same messages: the promises for updates hold for their handlers too. And
bots of several frameworks in one worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from chatlanes_sandbox.simulator import Simulator, start
from tests.bot.adapters.bots.script import GREETING, QUESTION
from tests.pipeline.conftest import MakePipeline
from tests.support.history import check_order
from tests.support.pipeline import BOT_ID, Pipeline, conversations, message
from tests.support.waiting import until

BOTS = {
    "plain": "tests.bot.adapters.bots.plain:handle",
    "plain-async": "tests.bot.adapters.bots.plain:handle_async",
    "telebot": "tests.bot.adapters.bots.telebot:bot",
    "async-telebot": "tests.bot.adapters.bots.async_telebot:bot",
    "aiogram": "tests.bot.adapters.bots.aiogram:dp",
    "ptb": "tests.bot.adapters.bots.ptb:application",
}
#: One cell of each framework and each pool. Coroutines share one event loop, so they can have many slots at no cost.
CELLS = [
    ("plain", "prefork", 2),
    ("plain-async", "threads", 50),
    ("telebot", "gevent", 50),
    ("async-telebot", "threads", 50),
    ("aiogram", "prefork", 2),
    ("ptb", "threads", 50),
]
#: Chats of the load; the other cases have a chat each.
TALKING = range(1, 21)
EACH = 8
POISONED, ASKED, INTERRUPTED, DEPLOYED = 101, 102, 103, 104


@pytest.mark.parametrize(("name", "pool", "slots"), CELLS, ids=[f"{name}-{pool}" for name, pool, _ in CELLS])
def test_promises(make_pipeline: MakePipeline, name: str, pool: str, slots: int) -> None:
    pipeline = make_pipeline(BOT=BOTS[name], MAX_ATTEMPTS=2, RETRY_BACKOFF=0.01, LEASE_SECONDS=3)
    pipeline.poller()
    first = pipeline.worker(pool, slots)
    # Order under load; an update that always fails is retried and buried
    poison, _, _ = pipeline.push(message(0, POISONED, do="fails"), message(1, POISONED), message(0, ASKED, do="ask"))
    pipeline.push(*conversations(len(TALKING), EACH))
    pipeline.drained()
    everybody = {chat: list(range(1, EACH + 1)) for chat in TALKING}
    assert pipeline.simulator.answers() == {**everybody, POISONED: [1]}
    assert pipeline.dead() == [f"{BOT_ID}:{poison}"]
    assert [problem["message"] for problem in pipeline.problems(f"{BOT_ID}:{poison}")] == ["attempt 1", "attempt 2"]
    # A worker is killed while its handler sends the last of three messages: only that message is sent again
    pipeline.simulator.fault(method="sendMessage", chat_id=INTERRUPTED, times=2)
    pipeline.simulator.fault(method="sendMessage", chat_id=INTERRUPTED, hang_s=60)
    pipeline.push(message(0, INTERRUPTED, do="three"))
    until(lambda: len(texts(pipeline, INTERRUPTED)) == 3)
    first.kill_all()
    second = pipeline.worker(pool, slots)
    pipeline.drained()
    assert texts(pipeline, INTERRUPTED) == ["part 1", "part 2", "part 3", "part 3"]
    # The conversation that began on the first worker continues on the second
    pipeline.push(message(0, ASKED, do="Ann"))
    pipeline.drained()
    assert texts(pipeline, ASKED) == [QUESTION, f"{GREETING} Ann from {second.name}"]
    # A worker that is stopped finishes its running handlers and starts no others
    running, behind = pipeline.push(message(1, DEPLOYED, do="waits"), message(2, DEPLOYED))
    pipeline.started(running)
    second.ask_to_stop()
    second.tells("Warm shutdown")
    pipeline.open("gate")
    assert second.exit_code() == 0
    assert (pipeline.state_of(running), pipeline.state_of(behind)) == (None, "ready")
    assert pipeline.simulator.answers()[DEPLOYED] == [1]
    # And no update ever ran at the same time as another of its chat, or out of order
    ended = set(pipeline.happened("end"))
    assert len(ended) == len(TALKING) * EACH + len([POISONED, INTERRUPTED, DEPLOYED])
    check_order(
        [event for event in pipeline.history if event.id in ended],
        {update: lanes for update, lanes in pipeline.lanes.items() if update in ended},
        killed=[first.name],
    )


@pytest.mark.parametrize("name", ["plain-async", "ptb"])
def test_coroutines_are_refused_in_gevent(make_pipeline: MakePipeline, name: str) -> None:
    worker = make_pipeline(BOT=BOTS[name]).worker("gevent", 1, is_awaited=False)
    assert worker.exit_code() == 2
    assert "an event loop does not run beside greenlets; start the worker with -P prefork or -P threads" in worker.log


def texts(pipeline: Pipeline, chat: int) -> list[Any]:
    """The texts sent to a chat."""
    calls = [call["params"] for call in pipeline.simulator.calls("sendMessage")]
    return [params["text"] for params in calls if str(params["chat_id"]) == str(chat)]


#: framework -> id of its bot. The plain bot is the pipeline's own.
OTHERS = {"telebot": 7001, "aiogram": 7002}
CHATS, EACH = 8, 6


@pytest.fixture(scope="module")
def others() -> Iterator[dict[str, Simulator]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(start(f"{bot}:SECRET-part_of-the_TOKEN", first_update_id=bot * 1000))
            for name, bot in OTHERS.items()
        }


@pytest.mark.parametrize(("pool", "slots"), [("prefork", 2), ("threads", 20)])
def test_each_bot_answers_as_itself(
    make_pipeline: MakePipeline, others: dict[str, Simulator], tmp_path: Path, pool: str, slots: int
) -> None:
    # Given a function, a TeleBot and a Dispatcher, which receive the same messages in chats with the same ids
    for simulator in others.values():
        simulator.reset()
    tokens = {f"{name.upper()}_TOKEN": simulator.token for name, simulator in others.items()}
    file = tmp_path / "bots.toml"
    tables = [f'[plain]\ntoken_env = "BOT_TOKEN"\nbot = "{BOTS["plain"]}"\n']
    tables += [
        f'[{name}]\ntoken_env = "{name.upper()}_TOKEN"\nbot = "{BOTS[name]}"\nbot_api_url = "{simulator.url}"\n'
        for name, simulator in others.items()
    ]
    file.write_text("".join(tables) + "max_attempts = 2\nretry_backoff = 0\n")  # for the last table
    pipeline = make_pipeline(BOTS=file, **tokens)
    pushed = [*conversations(CHATS, EACH), message(0, 99, do="ask"), message(0, 99, do="Ann")]
    pipeline.push(*pushed)
    for simulator in others.values():
        simulator.push(*pushed)
    [poison] = others["aiogram"].push(message(0, 77, do="fails"))
    # When one worker runs them all
    pipeline.poller()
    worker = pipeline.worker(pool, slots)
    everyone = [pipeline.simulator, *others.values()]
    until(lambda: all(each.stats()["confirmed"] == each.stats()["added"] for each in everyone))
    until(lambda: pipeline.pending() == 0)
    worker.stop()
    # Then each has answered in order, through its own server and with its own conversation state
    for each in everyone:
        assert each.answers() == {chat: list(range(1, EACH + 1)) for chat in range(1, CHATS + 1)}
        to_99 = [call["params"]["text"] for call in each.calls("sendMessage") if str(call["params"]["chat_id"]) == "99"]
        assert to_99 == [QUESTION, f"{GREETING} Ann from {worker.name}"]
    # And the failure belongs to one bot only
    assert pipeline.dead() == [f"{OTHERS['aiogram']}:{poison}"]
