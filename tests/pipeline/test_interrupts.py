"""INTERRUPT=on: a newer update of the group ends the run in progress; the next run gets the old and the new ones."""

from __future__ import annotations

import pytest

from tests.pipeline.conftest import POOLS, MakePipeline
from tests.pipeline.test_collecting import answers, joined, said, texts
from tests.support.pipeline import Pipeline
from tests.support.waiting import until

PLAIN, COROUTINES = "tests.support.talking_bot:bot", "tests.support.talking_bot:bot_async"
#: Every kind of handler in every pool that can interrupt it.
CELLS = [
    *((PLAIN, pool) for pool in ("prefork", "threads", "gevent")),
    *((COROUTINES, pool) for pool in ("prefork", "threads")),
]
#: The next run waits for the only slot, so nothing may keep it.
SOLO = [(PLAIN, "solo"), (COROUTINES, "solo")]

#: The log line of the worker when a run was interrupted, after the handler has ended.
RETRIED = "retry: Retry in 0s: Interrupted('a newer update has ended this run of"


def interruptible(make_pipeline: MakePipeline, bot: str, pool: str, **settings: object) -> Pipeline:
    """A pipeline with a running poller and worker. An interrupted run would be buried if it counted as an attempt."""
    shared = {"COLLECT": "messages", "COLLECT_QUIET": 0.3, "INTERRUPT": "on", "LEASE_SECONDS": 30, "MAX_ATTEMPTS": 1}
    pipeline = make_pipeline(**{"BOT": bot, **shared, **settings})
    pipeline.poller()
    pipeline.worker(pool, POOLS[pool])
    return pipeline


def reached(pipeline: Pipeline, gate: str) -> None:
    until(lambda: (pipeline.directory / f"{gate}.reached").exists())


def events(pipeline: Pipeline) -> list[str]:
    return [event.what for event in pipeline.history]


def deleted(pipeline: Pipeline) -> list[int]:
    return [call["params"]["message_id"] for call in pipeline.simulator.calls("deleteMessage")]


def interrupt(pipeline: Pipeline, text: str) -> list[int]:
    """A newer message arrives while the run of `text` waits at gate a, which opens when the next run has started.
    Returns the ids of both when their answer is there.
    """
    first = pipeline.push(*texts(text))
    reached(pipeline, "a")
    second = pipeline.push(*texts("no, b"))
    until(lambda: events(pipeline).count("start") == 2)
    pipeline.open("a")
    pipeline.drained()
    return first + second


def check_interrupted_once(pipeline: Pipeline, ended_by: str) -> None:
    """One run was interrupted, which no hook and no log counts as a failure, and the next one ended."""
    assert sorted(events(pipeline)) == sorted(["start", ended_by, "start", "end"])
    assert pipeline.session(7) == {"runs": 1}
    assert pipeline.leftovers() == []
    assert pipeline.dead() == []
    until(lambda: RETRIED in pipeline.workers[0].log)
    log = pipeline.workers[0].log
    assert "ERROR" not in log
    assert "Traceback" not in log
    assert "WARNING" not in log
    assert log.count(RETRIED) == 1


@pytest.mark.first_only
@pytest.mark.parametrize(("bot", "pool"), [*CELLS, *SOLO])
def test_a_newer_message_ends_the_run(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    pipeline = interruptible(make_pipeline, bot, pool)
    # Given a run that has sent a message and would not end by itself
    # When a newer message arrives, and the second run may end
    both = interrupt(pipeline, "poll:a")
    # Then the next run has deleted the first message and answers both
    assert said(pipeline) == ["one moment", "one moment", joined(both, "poll:a", "no, b")]
    assert len(pipeline.simulator.calls("deleteMessage")) == 1
    check_interrupted_once(pipeline, "CancelledError" if bot == COROUTINES else "Interrupted")


@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_a_handler_that_does_not_look_is_refused_at_its_next_call(make_pipeline: MakePipeline, pool: str) -> None:
    pipeline = interruptible(make_pipeline, PLAIN, pool)
    # The next run does not wait for the handler of the first
    both = interrupt(pipeline, "gate:a")
    until(lambda: len(events(pipeline)) == 4)
    assert answers(pipeline) == [joined(both, "gate:a", "no, b")]
    check_interrupted_once(pipeline, "Interrupted")


@pytest.mark.first_only
@pytest.mark.parametrize(("bot", "pool"), CELLS)
def test_a_shield_is_not_interrupted(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    pipeline = interruptible(make_pipeline, bot, pool)
    first = pipeline.push(*texts("shield:a"))
    reached(pipeline, "a")
    second = pipeline.push(*texts("no, b"))
    until(lambda: pipeline.simulator.stats()["confirmed"] == 2)
    assert events(pipeline) == ["start"]
    pipeline.open("a")
    pipeline.drained()
    # Then the run was interrupted at the end of the shield
    assert answers(pipeline) == ["booked", "booked", joined(first + second, "shield:a", "no, b")]
    check_interrupted_once(pipeline, "CancelledError" if bot == COROUTINES else "Interrupted")


def test_a_run_may_be_interrupted_again_and_again(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, COROUTINES, "threads")
    ids: list[int] = []
    for number in range(1, 5):
        ids += pipeline.push(*texts(f"gate:g{number}"))
        until(lambda number=number: events(pipeline).count("start") == number)  # type: ignore[misc]
        reached(pipeline, "g1")
    for number in range(1, 5):
        pipeline.open(f"g{number}")
    pipeline.drained()
    assert answers(pipeline) == [joined(ids, "gate:g1", "gate:g2", "gate:g3", "gate:g4")]
    # And no message is deleted twice, which Telegram refuses
    assert deleted(pipeline) == sorted(set(deleted(pipeline)))
    assert events(pipeline).count("end") == 1
    assert pipeline.session(7) == {"runs": 1}


def test_a_deleted_stream_is_not_among_the_previous_calls(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, PLAIN, "threads")
    # Given a run that has sent a message and streams another
    first = pipeline.push(*texts("stream:a"))
    until(lambda: bool(pipeline.simulator.calls("editMessageText")))
    # When it is interrupted, and the next run deletes what the first had sent
    second = pipeline.push(*texts("no, b"))
    until(lambda: events(pipeline).count("start") == 2)
    pipeline.open("a")
    pipeline.drained()
    # Then the stream's message is deleted once, before the handler
    assert deleted(pipeline) == [2, 1]
    assert said(pipeline)[-1] == joined(first + second, "stream:a", "no, b")


def test_messages_deleted_in_one_call_are_not_among_the_previous_calls(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, PLAIN, "threads")
    # Given a run that has sent a message, and two more, which it has deleted
    pipeline.push(*texts("bulk:2 gate:a"))
    reached(pipeline, "a")
    # When it is interrupted, and the next run deletes what the first had sent
    pipeline.push(*texts("no, b"))
    until(lambda: events(pipeline).count("start") == 2)
    pipeline.open("a")
    pipeline.drained()
    # Then it deletes only the first message
    assert deleted(pipeline) == [1]


def test_what_does_not_belong_to_the_run_waits_for_it(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, COROUTINES, "threads")
    first = pipeline.push(*texts("gate:a"))
    reached(pipeline, "a")
    command, last = pipeline.push(*texts("/now", "later"))
    until(lambda: pipeline.simulator.stats()["confirmed"] == 3)
    pipeline.open("a")
    pipeline.drained()
    assert answers(pipeline) == [joined(first, "gate:a"), joined([command], "/now"), joined([last], "later")]


def test_a_killed_worker_does_not_lose_what_an_interrupted_run_had_sent(make_pipeline: MakePipeline) -> None:
    pipeline = interruptible(make_pipeline, COROUTINES, "threads", LEASE_SECONDS=3, MAX_ATTEMPTS=5)
    first = pipeline.push(*texts("gate:a"))
    reached(pipeline, "a")
    (pipeline.directory / "a.reached").unlink()
    # When the second run dies with its worker, after it has deleted the message of the first and sent its own
    second = pipeline.push(*texts("gate:b"))
    reached(pipeline, "a")
    pipeline.workers[0].kill_all()
    for gate in ("a", "b"):
        pipeline.open(gate)
    pipeline.worker("threads", 2)
    pipeline.drained()
    # Then the third run repeats no call of the second
    assert said(pipeline) == ["one moment", "one moment", joined(first + second, "gate:a", "gate:b")]
    assert len(pipeline.simulator.calls("deleteMessage")) == 1
