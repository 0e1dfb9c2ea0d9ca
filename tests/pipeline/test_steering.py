"""INTERRUPT=steer: the run in progress takes newer updates of its group; what it leaves is the next run."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import POOLS, MakePipeline
from tests.pipeline.test_collecting import answers, joined, said, texts
from tests.pipeline.test_interrupts import CELLS, COROUTINES, PLAIN, events, reached
from tests.support.pipeline import Pipeline
from tests.support.waiting import until


def steered(make_pipeline: MakePipeline, bot: str, pool: str, **settings: object) -> Pipeline:
    """A pipeline with a running poller and worker. A steered run would be buried if it counted as an attempt."""
    shared = {"COLLECT": "messages", "COLLECT_QUIET": 0.3, "INTERRUPT": "steer", "LEASE_SECONDS": 30, "MAX_ATTEMPTS": 1}
    pipeline = make_pipeline(**{"BOT": bot, **shared, **settings})
    pipeline.poller()
    pipeline.worker(pool, POOLS[pool])
    return pipeline


@pytest.mark.first_only
@pytest.mark.parametrize(("bot", "pool"), CELLS)
def test_a_run_takes_newer_messages(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    # Given a run
    pipeline = steered(make_pipeline, bot, pool)
    first = pipeline.push(*texts("steer:a"))
    reached(pipeline, "a")
    # When newer messages arrive, it answers them
    pipeline.push(*texts("in blue", "please"))
    until(lambda: said(pipeline) == ["one moment", "took in blue", "took please"])
    pipeline.push(*texts("and large"))
    until(lambda: said(pipeline)[-1] == "took and large")
    # Then they are settled with it, and the next message is a run of its own
    pipeline.open("a")
    [last] = pipeline.push(*texts("thanks"))
    pipeline.drained()
    assert answers(pipeline) == [*said(pipeline)[1:4], joined(first, "steer:a"), joined([last], "thanks")]
    assert [each for each in events(pipeline) if each != "took"] == ["start", "end", "start", "end"]
    assert pipeline.session(7) == {"runs": 2}
    assert (pipeline.count("steered"), pipeline.count("interrupted")) == (3, 0)
    assert pipeline.dead() == pipeline.leftovers() == []
    assert not {"ERROR", "Traceback", "WARNING"} & set(pipeline.workers[0].log.split())


@pytest.mark.first_only
@pytest.mark.parametrize(("bot", "pool"), [(PLAIN, "prefork"), (COROUTINES, "prefork"), (COROUTINES, "threads")])
def test_a_killed_run_takes_the_same_messages_again(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    # Given a run that has taken a message and answered it
    pipeline = steered(make_pipeline, bot, pool, MAX_ATTEMPTS=5, LEASE_SECONDS=3)
    first = pipeline.push(*texts("steer:a"))
    reached(pipeline, "a")
    pipeline.push(*texts("in blue"))
    until(lambda: said(pipeline)[-1] == "took in blue")
    # When it is killed with another one, which it has not answered yet
    pipeline.push(*texts("dies"))
    until(lambda: events(pipeline).count("took") >= 2)
    if pool != "prefork":
        pipeline.worker("threads", 2)
    # Then the next run takes both again, in order, repeats no call, and takes what arrives
    until(lambda: said(pipeline)[-1] == "took dies")
    pipeline.push(*texts("and large"))
    until(lambda: said(pipeline)[-1] == "took and large")
    pipeline.open("a")
    pipeline.drained()
    assert said(pipeline) == [
        "one moment",
        *("took in blue", "took dies", "took and large"),
        joined(first, "steer:a"),
    ]
    assert events(pipeline) == ["start", "took", "took", "start", "took", "took", "took", "end"]
    assert pipeline.session(7) == {"runs": 1}
    assert pipeline.dead() == pipeline.leftovers() == []


@pytest.mark.parametrize("bot", [PLAIN, COROUTINES])
def test_what_a_killed_run_did_is_repeated_without_newer_messages(make_pipeline: MakePipeline, bot: str) -> None:
    # Given a run that has looked for messages, then made a call, and is killed
    pipeline = steered(make_pipeline, bot, "threads", MAX_ATTEMPTS=5, LEASE_SECONDS=3)
    first = pipeline.push(*texts("look:a gate:b"))
    reached(pipeline, "b")
    second = pipeline.push(*texts("in blue"))
    until(lambda: pipeline.simulator.stats()["confirmed"] == 2)
    pipeline.workers[0].kill_all()
    # When a message has arrived since
    pipeline.worker("threads", 2)
    pipeline.open("b")
    pipeline.drained()
    # Then the next run, which repeats the call, does not take it, and it is a run of its own
    assert said(pipeline) == ["one moment", "looked", joined(first, "look:a gate:b"), joined(second, "in blue")]


@pytest.mark.parametrize("bot", [PLAIN, COROUTINES])
def test_what_the_handler_leaves_is_the_next_run(make_pipeline: MakePipeline, bot: str) -> None:
    # Given a run that takes one message only
    pipeline = steered(make_pipeline, bot, "threads")
    first = pipeline.push(*texts("one:a"))
    reached(pipeline, "a")
    # When two arrive together
    _, second, *_ = pipeline.push(*texts("in blue", "and large"))
    pipeline.drained()
    # Then the other one is a run of its own
    until(lambda: len(answers(pipeline)) == 3)
    assert answers(pipeline) == ["took in blue", joined(first, "one:a"), joined([second], "and large")]


def test_a_command_is_not_taken(make_pipeline: MakePipeline) -> None:
    pipeline = steered(make_pipeline, COROUTINES, "threads")
    first = pipeline.push(*texts("steer:a"))
    reached(pipeline, "a")
    command, last = pipeline.push(*texts("/now", "later"))
    until(lambda: pipeline.simulator.stats()["confirmed"] == 3)
    pipeline.open("a")
    pipeline.drained()
    assert answers(pipeline) == [joined(first, "steer:a"), joined([command], "/now"), joined([last], "later")]


@pytest.mark.parametrize("bot", [PLAIN, COROUTINES])
def test_a_handler_that_asks_is_continued_with_what_it_has_taken(make_pipeline: MakePipeline, bot: str) -> None:
    # Given a run that has taken a message, and then asked a question
    pipeline = steered(make_pipeline, bot, "threads")
    first = pipeline.push(*texts("one:a asks:b"))
    reached(pipeline, "a")
    pipeline.push(*texts("in blue"))
    until(lambda: said(pipeline)[-1] == "sure?")
    # When the user answers
    pipeline.push(*texts("yes"))
    # Then the handler gets the message again, in its place
    pipeline.drained()
    assert said(pipeline) == ["one moment", "took in blue", "sure?", "answer yes", joined(first, "one:a asks:b")]
    assert events(pipeline).count("took") == 2
