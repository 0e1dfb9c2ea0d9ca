"""CONTROL: `/stop` and the Stop button end the run in progress in their lane, and pass nothing else."""

from __future__ import annotations

import time
from typing import Any

import pytest
import requests

from celery_lanes.embedded_server import free_port
from chatlanes.settings import secret_from
from tests.pipeline.conftest import POOLS, MakePipeline
from tests.pipeline.test_collecting import said, texts
from tests.pipeline.test_interrupts import events, reached
from tests.support.pipeline import TOKEN, Pipeline
from tests.support.waiting import until

PLAIN, COROUTINES = "tests.support.talking_bot:bot_stopped", "tests.support.talking_bot:bot_async_stopped"
CELLS = [(PLAIN, "prefork"), (PLAIN, "threads"), (PLAIN, "gevent"), (COROUTINES, "prefork"), (COROUTINES, "threads")]
BUTTON: dict[str, Any] = {
    "stopped_message_generation": {"chat": {"id": 7, "type": "private"}, "draft_id": 1},
}


def stoppable(make_pipeline: MakePipeline, bot: str, pool: str, **settings: object) -> Pipeline:
    """A pipeline with a running poller and worker. A stopped run would be buried if it counted as an attempt."""
    pipeline = make_pipeline(**{"BOT": bot, "LEASE_SECONDS": 30, "MAX_ATTEMPTS": 1, **settings})
    pipeline.poller()
    pipeline.worker(pool, POOLS[pool])
    return pipeline


def edits(pipeline: Pipeline) -> list[str]:
    return [call["params"]["text"] for call in pipeline.simulator.calls("editMessageText")]


@pytest.mark.first_only
@pytest.mark.parametrize(("bot", "pool"), CELLS)
def test_a_command_ends_the_run_and_what_it_streamed_stays(make_pipeline: MakePipeline, bot: str, pool: str) -> None:
    # Given a run that streams and would not end by itself, and a message behind it
    pipeline = stoppable(make_pipeline, bot, pool)
    pipeline.push(*texts("stream:a", "behind"))
    until(lambda: len(edits(pipeline)) > 1)
    # When the user sends /stop
    pipeline.push(*texts("/stop"))
    # Then the run ends, what it had streamed is marked, and the others run in their places
    pipeline.drained()
    ended_by = "CancelledError" if bot == COROUTINES else "Interrupted"
    until(lambda: len(events(pipeline)) == 5)
    assert [each for each in events(pipeline) if each != ended_by] == ["start", "start", "end", "on_stop"]
    assert edits(pipeline)[-1].endswith(" ⏹")
    assert sum(text.endswith(" ⏹") for text in edits(pipeline)) == 1
    assert pipeline.simulator.calls("deleteMessage") == []
    # And the stopped run has stored nothing, and does not count as a failure
    assert said(pipeline)[-1] == "message after 1 runs"
    assert (pipeline.count("stopped"), pipeline.count("retried"), pipeline.count("settled")) == (1, 0, 3)
    assert pipeline.dead() == pipeline.leftovers() == []
    until(lambda: "stopped by a newer update" in pipeline.workers[0].log)
    assert not {"ERROR", "Traceback", "WARNING"} & set(pipeline.workers[0].log.split())


def test_the_stop_button_ends_a_draft_whose_text_becomes_a_message(make_pipeline: MakePipeline) -> None:
    pipeline = stoppable(make_pipeline, PLAIN, "threads")
    pipeline.push(*texts("draft:a"))
    until(lambda: len(pipeline.simulator.calls("sendMessageDraft")) > 1)
    # Given that Telegram shows the button
    drafts = [call["params"] for call in pipeline.simulator.calls("sendMessageDraft")]
    assert all(draft["can_stop"] in (True, "true") for draft in drafts)
    # When it is pressed
    pipeline.simulator.push(BUTTON)
    pipeline.drained()
    # Then the text stays
    assert said(pipeline)[1].startswith("streams a and a")
    assert said(pipeline)[1].endswith(" ⏹")
    assert said(pipeline)[2:] == ["stopped_message_generation after 0 runs"]


def test_without_on_stop_the_command_goes_to_the_bot(make_pipeline: MakePipeline) -> None:
    pipeline = stoppable(make_pipeline, "tests.support.talking_bot:bot", "threads", CONTROL="/halt")
    pipeline.push(*texts("gate:a"))
    reached(pipeline, "a")
    [halt] = pipeline.push(*texts("/Halt@simulated_bot now"))
    until(lambda: pipeline.count("stopped") == 1)
    pipeline.open("a")
    pipeline.drained()
    assert said(pipeline) == ["one moment", f"{halt}: /Halt@simulated_bot now"]


@pytest.mark.parametrize("by_webhook", [False, True], ids=["poller", "receiver"])
def test_a_command_for_another_bot_stops_nothing(make_pipeline: MakePipeline, by_webhook: bool) -> None:
    pipeline = make_pipeline(BOT=PLAIN, LEASE_SECONDS=30, MAX_ATTEMPTS=1)
    pipeline.worker("threads", POOLS["threads"])
    if by_webhook:
        pipeline.receiver(port := free_port())
        hook = {"url": f"http://127.0.0.1:{port}/hook", "secret_token": secret_from(TOKEN)}
        requests.post(f"{pipeline.simulator.url}/bot{TOKEN}/setWebhook", json=hook, timeout=30).raise_for_status()
    else:
        pipeline.poller()
    pipeline.push(*texts("gate:a"))
    reached(pipeline, "a")
    [stop] = pipeline.push(*texts("/stop@other_bot"))
    until(lambda: pipeline.simulator.stats()["pending"] == 0)
    pipeline.open("a")
    pipeline.drained()
    assert events(pipeline) == ["start", "end"] * 2
    assert said(pipeline)[-1] == f"{stop}: /stop@other_bot"


def test_with_none_nothing_is_stopped(make_pipeline: MakePipeline) -> None:
    pipeline = stoppable(make_pipeline, PLAIN, "threads", CONTROL="none")
    pipeline.push(*texts("gate:a"))
    reached(pipeline, "a")
    pipeline.push(*texts("/stop"))
    pipeline.simulator.push(BUTTON)
    until(lambda: pipeline.simulator.stats()["confirmed"] == 3)
    pipeline.open("a")
    pipeline.drained()
    assert events(pipeline) == ["start", "end"] * 3
    assert pipeline.count("stopped") == 0


def test_a_payment_is_not_stopped(make_pipeline: MakePipeline) -> None:
    pipeline = stoppable(make_pipeline, PLAIN, "threads")
    [paid] = texts("gate:a")
    paid["message"]["successful_payment"] = {"currency": "XTR", "total_amount": 1}
    pipeline.push(paid)
    reached(pipeline, "a")
    pipeline.push(*texts("/stop"))
    until(lambda: pipeline.simulator.stats()["confirmed"] == 2)
    pipeline.open("a")
    pipeline.drained()
    assert events(pipeline) == ["start", "end", "on_stop"]


def test_a_worker_that_is_killed_between_the_stop_and_the_mark(make_pipeline: MakePipeline) -> None:
    # Given a stopped run whose stream is being marked
    pipeline = stoppable(make_pipeline, PLAIN, "prefork", LEASE_SECONDS=1, MAX_ATTEMPTS=5)
    pipeline.push(*texts("stream:a"))
    until(lambda: len(edits(pipeline)) > 1)
    pipeline.workers[0].freeze()
    pipeline.push(*texts("/stop"))
    until(lambda: pipeline.count("stopped") == 1)
    # When its worker is killed
    pipeline.workers[0].kill_all()
    pipeline.worker("threads", 2)
    # Then another one marks it, once, and the bot is not called again
    pipeline.drained()
    assert events(pipeline) == ["start", "on_stop"]
    assert sum(text.endswith(" ⏹") for text in edits(pipeline)) == 1
    assert edits(pipeline)[-1].endswith(" ⏹")


def test_the_run_is_told_within_milliseconds(make_pipeline: MakePipeline) -> None:
    # Without the message that tells it, it would learn of the stop from a renewal, after 40 s
    pipeline = stoppable(make_pipeline, COROUTINES, "threads", LEASE_SECONDS=120)
    pipeline.push(*texts("gate:never"))
    reached(pipeline, "never")
    before_s = time.monotonic()
    pipeline.push(*texts("/stop"))
    until(lambda: "CancelledError" in events(pipeline))
    assert time.monotonic() - before_s < 20
