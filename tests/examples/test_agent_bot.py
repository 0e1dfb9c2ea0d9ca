"""examples/agent_bot.py: streams, pays for each tool once, asks before the second, and can be stopped and steered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatlanes_sandbox.simulator import Simulator, start
from examples import agent_bot
from tests.support.pipeline import TOKEN, Pipeline, message
from tests.support.shown import shown
from tests.support.waiting import until

CHAT = 7
WISH = "two nights in Rome"


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def pipeline(simulator: Simulator, redis_url: str, tmp_path: Path) -> Iterator[Pipeline]:
    steered = {"COLLECT": "messages", "COLLECT_QUIET": 0.1, "INTERRUPT": "steer"}
    pipeline = Pipeline(tmp_path, simulator, redis_url, BOT="examples.agent_bot:bot", LEASE_SECONDS=2, **steered)
    pipeline.poller()
    pipeline.worker("threads", 4)
    yield pipeline
    pipeline.close()


def texts(pipeline: Pipeline) -> list[str]:
    return list(shown(pipeline.simulator, CHAT).values())


def paid(pipeline: Pipeline) -> list[str]:
    """The paid calls of the tools, on all workers."""
    found = (re.findall(r"paid (\S+) € for \d+:\d+/(\w+)/1", worker.log) for worker in pipeline.workers)
    return [f"{name}: {price}" for each in found for price, name in each]


def press(pipeline: Pipeline, button: str) -> None:
    calls = pipeline.simulator.calls("sendMessage")
    [question] = [call for call in calls if "reply_markup" in call["params"] and call["ok"]]
    pipeline.simulator.press(question, button, user_id=CHAT)
    pipeline.drained()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_it_continues_on_another_worker_and_pays_once(pipeline: Pipeline) -> None:
    pipeline.push(message(0, chat=CHAT, do=WISH))
    pipeline.drained()
    thoughts = [f"You want this: “{WISH}”. I search for a hotel that fits. "]
    thoughts += [f"Hotel Aurora suits “{WISH}”, and has a quiet room. ", "Hotel Aurora costs 120 €."]
    assert texts(pipeline) == thoughts
    assert paid(pipeline) == ["search: 0.10"]
    # When its worker is killed, and the user answers
    pipeline.workers[0].kill_all()
    pipeline.worker("threads", 4)
    press(pipeline, agent_bot.BOOK)
    # Then nothing is said or paid again
    [*before, last] = texts(pipeline)
    assert before == thoughts
    assert last.startswith("It is booked. The number is A-")
    assert paid(pipeline) == ["search: 0.10", "book: 120"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_without_a_yes_it_books_nothing(pipeline: Pipeline) -> None:
    pipeline.push(message(0, chat=CHAT, do=WISH))
    pipeline.drained()
    press(pipeline, "No")
    assert texts(pipeline)[-1] == "I have booked nothing."
    assert paid(pipeline) == ["search: 0.10"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_it_takes_what_the_user_adds_while_it_thinks(pipeline: Pipeline) -> None:
    wish = "a very " * 40 + "long journey"
    pipeline.push(message(0, chat=CHAT, do=wish))
    until(lambda: len(pipeline.simulator.calls("sendMessageDraft")) > 0)
    pipeline.push(message(0, chat=CHAT, do="with a balcony"))
    pipeline.drained()
    press(pipeline, agent_bot.BOOK)
    _, second, _, last = texts(pipeline)
    assert second == f"Hotel Aurora suits “{wish}, with a balcony”, and has a quiet room. "
    assert last.startswith("It is booked.")
    assert paid(pipeline) == ["search: 0.10", "book: 120"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_it_can_be_stopped(pipeline: Pipeline) -> None:
    pipeline.push(message(0, chat=CHAT, do="a very " * 150 + "long journey"))
    until(lambda: len(pipeline.simulator.calls("sendMessageDraft")) > 0)
    pipeline.push(message(0, chat=CHAT, do="/stop"))
    pipeline.drained()
    thought, answer = texts(pipeline)
    assert thought.endswith(" ⏹")
    assert answer == "Stopped. What shall I do instead?"
    assert paid(pipeline) == []


def test_it_is_short() -> None:
    assert len(Path(agent_bot.__file__).read_text().splitlines()) <= 60
