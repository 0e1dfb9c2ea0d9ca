"""examples/llm_bot.py with its fake model: quick messages get one answer, and a correction replaces the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chatlanes_sandbox.simulator import Simulator, start
from tests.support.pipeline import TOKEN, Pipeline
from tests.support.shown import shown
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]

CHAT = 7


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with start(TOKEN) as simulator:
        yield simulator


@pytest.fixture
def pipeline(simulator: Simulator, redis_url: str, tmp_path: Path) -> Iterator[Pipeline]:
    settings = {"BOT": "examples.llm_bot:handle", "COLLECT": "messages", "INTERRUPT": "on", "COLLECT_QUIET": 0.5}
    pipeline = Pipeline(tmp_path, simulator, redis_url, **settings)
    pipeline.poller()
    pipeline.worker("threads", 4)
    yield pipeline
    pipeline.close()


def says(number: int, text: str) -> dict[str, object]:
    sender = {"id": CHAT, "is_bot": False, "first_name": "Ada"}
    return {
        "message": {
            "message_id": number,
            "date": 1_700_000_000,
            "chat": {"id": CHAT, "type": "private", "first_name": "Ada"},
            "from": sender,
            "text": text,
        }
    }


def test_three_quick_messages_get_one_answer(pipeline: Pipeline) -> None:
    pipeline.simulator.push(says(1, "hello"), says(2, "I have"), says(3, "a question"))
    pipeline.drained()
    [answer] = shown(pipeline.simulator, CHAT).values()
    assert answer.startswith("You wrote 3 lines and this is answer 1.")
    assert "“hello”" in answer
    assert answer.endswith("so this one goes on for a few more words. ")
    assert [each["role"] for each in pipeline.session(CHAT)["messages"]] == ["user", "assistant"]


def test_a_correction_replaces_the_answer(pipeline: Pipeline) -> None:
    pipeline.simulator.push(says(1, "tell me about cats"))
    until(lambda: any("cats" in text for text in shown(pipeline.simulator, CHAT).values()))
    pipeline.simulator.push(says(2, "no, about dogs"))
    pipeline.drained()
    [answer] = shown(pipeline.simulator, CHAT).values()
    assert answer.startswith("You wrote 2 lines and this is answer 1.")
    assert "“no, about dogs”" in answer
    assert len(pipeline.simulator.calls("deleteMessage")) == 1
    [question, _] = pipeline.session(CHAT)["messages"]
    assert question["content"] == "tell me about cats\nno, about dogs"
