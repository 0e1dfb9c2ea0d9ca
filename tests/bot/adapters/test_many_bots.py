"""Bots of several frameworks in one worker, each with its own token and server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from chatlanes.sandbox.simulator import Simulator, start
from tests.bot.adapters.bots.script import GREETING, QUESTION
from tests.bot.adapters.test_matrix import BOTS
from tests.pipeline.conftest import MakePipeline
from tests.support.pipeline import conversations, message
from tests.support.waiting import until

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
