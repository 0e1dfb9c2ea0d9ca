"""ctx.mode: a user chooses what becomes of messages that arrive during a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pipeline.conftest import MakePipeline
from tests.pipeline.test_collecting import answers, joined, said, texts
from tests.pipeline.test_interrupts import COROUTINES, PLAIN, events, reached
from tests.support.pipeline import BOT_ID, Pipeline
from tests.support.waiting import until

#: Telegram sends both when a group becomes a supergroup.
GROUP, SUPERGROUP = -7, -1007


def talking(make_pipeline: MakePipeline, bot: str = PLAIN, **settings: object) -> Pipeline:
    shared = {"COLLECT": "messages", "COLLECT_QUIET": 0.3, "LEASE_SECONDS": 30, "MAX_ATTEMPTS": 1}
    pipeline = make_pipeline(**{"BOT": bot, **shared, **settings})
    pipeline.poller()
    pipeline.worker("threads", 4)
    return pipeline


def choose(pipeline: Pipeline, mode: str) -> None:
    pipeline.push(*texts(f"mode:{mode}"))
    pipeline.drained()


def modes(pipeline: Pipeline) -> dict[bytes, bytes]:
    found: Any = pipeline.redis.hgetall("lanes:modes")
    return dict(found)


@pytest.mark.parametrize("bot", [PLAIN, COROUTINES])
def test_a_user_lets_runs_be_steered_and_interrupted(make_pipeline: MakePipeline, bot: str) -> None:
    # Given a chat that has chosen that its runs are steered
    pipeline = talking(make_pipeline, bot)
    choose(pipeline, "steer")
    assert said(pipeline)[1] == "mode collect steer"
    # When a message arrives during a run, the run takes it
    pipeline.push(*texts("steer:a"))
    reached(pipeline, "a")
    pipeline.push(*texts("in blue"))
    until(lambda: said(pipeline)[-1] == "took in blue")
    # And in another chat, it does not
    [other] = pipeline.push(*texts("gate:a", chat=8))
    until(lambda: events(pipeline).count("start") == 3)
    [later] = pipeline.push(*texts("later", chat=8))
    pipeline.open("a")
    pipeline.drained()
    assert joined([other], "gate:a") in said(pipeline)
    assert joined([later], "later") in said(pipeline)
    # When the chat chooses that a newer message ends a run
    choose(pipeline, "interrupt")
    assert "mode steer interrupt" in said(pipeline)
    first = pipeline.push(*texts("poll:b"))
    reached(pipeline, "b")
    second = pipeline.push(*texts("no"))
    until(lambda: pipeline.count("interrupted") == 1)
    pipeline.open("b")
    pipeline.drained()
    assert said(pipeline)[-1] == joined(first + second, "poll:b", "no")


def test_a_user_lets_messages_wait(make_pipeline: MakePipeline) -> None:
    # Given a bot whose runs are interrupted, and a chat that has chosen that each message is a run of its own
    pipeline = talking(make_pipeline, INTERRUPT="on")
    choose(pipeline, "queue")
    assert said(pipeline)[1] == "mode interrupt queue"
    # When messages arrive during a run
    first = pipeline.push(*texts("gate:a"))
    reached(pipeline, "a")
    second, third = pipeline.push(*texts("one", "two"))
    until(lambda: pipeline.simulator.stats()["confirmed"] == 4)
    pipeline.open("a")
    pipeline.drained()
    # Then each is a run of its own
    assert answers(pipeline)[2:] == [joined(first, "gate:a"), joined([second], "one"), joined([third], "two")]
    # And with the choice of None, INTERRUPT decides again
    choose(pipeline, "none")
    assert "mode queue interrupt" in said(pipeline)
    assert modes(pipeline) == {}


def test_a_run_that_fails_chooses_nothing(make_pipeline: MakePipeline) -> None:
    pipeline = talking(make_pipeline)
    pipeline.push(*texts("mode:steer fails:9"))
    pipeline.drained()
    assert modes(pipeline) == {}


def test_a_supergroup_keeps_the_mode_of_its_group(make_pipeline: MakePipeline) -> None:
    pipeline = talking(make_pipeline)
    pipeline.push({"message": _of_group(text="mode:steer")})
    pipeline.drained()
    assert modes(pipeline) == {f"{BOT_ID}/chat:{GROUP}".encode(): b"steer"}
    pipeline.push({"message": _of_group(migrate_to_chat_id=SUPERGROUP)})
    pipeline.push({"message": _of_group(SUPERGROUP, migrate_from_chat_id=GROUP)})
    pipeline.drained()
    assert modes(pipeline) == {f"{BOT_ID}/chat:{SUPERGROUP}".encode(): b"steer"}


def test_a_choice_needs_collect(make_pipeline: MakePipeline) -> None:
    pipeline = talking(make_pipeline, COLLECT="none")
    [update] = pipeline.push(*texts("mode:steer"))
    pipeline.drained()
    [problem] = pipeline.problems(f"{BOT_ID}:{update}")
    assert problem["message"].startswith("ctx.mode needs a COLLECT other than none")


def _of_group(chat: int = GROUP, **content: object) -> dict[str, Any]:
    kind = "group" if chat == GROUP else "supergroup"
    place = {"chat": {"id": chat, "type": kind, "title": "G"}, "from": {"id": 9, "is_bot": False, "first_name": "A"}}
    return {"message_id": 1, "date": 1, **place, **content}
