"""Updates with a deadline: payments run before the backlog, and expired queries may be skipped."""

from __future__ import annotations

from typing import Any

from celery_lanes.protocol import keys
from tests.pipeline.conftest import MakePipeline
from tests.support.history import ids
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until


def query(kind: str, user: int) -> dict[str, Any]:
    return {kind: {"id": "q", "from": {"id": user, "is_bot": False, "first_name": "Ann"}}}


def by_user(update: dict[str, Any]) -> str | None:
    """The group of an inline query: that of user 7."""
    return "7" if update["inline_query"]["from"]["id"] == 7 else None


def push(pipeline: Pipeline, kind: str, user: int) -> int:
    [update_id] = pipeline.simulator.push(query(kind, user))
    assert update_id is not None
    return update_id


def test_a_payment_passes_a_backlog_but_not_its_own_chat(make_pipeline: MakePipeline) -> None:
    # Given a worker with one slot that consumes one queue, and 30 chats that wait in it
    pipeline = make_pipeline(QUEUES=1)
    pipeline.worker("threads", 1, "-Q", "updates.0")
    first, *backlog = pipeline.push(*(message(chat, chat, do="gate:a" if chat == 1 else "") for chat in range(1, 32)))
    pipeline.poller()
    pipeline.started(first)
    # When a user without a backlog pays, and also the user whose message is the last one of the backlog
    alone, behind = push(pipeline, "pre_checkout_query", 99), push(pipeline, "shipping_query", 31)
    until(lambda: pipeline.count("appended") == 33)
    pipeline.open("a")
    pipeline.drained()
    # Then the first payment runs next, and the other one after the message of its user
    started = ids(pipeline.history, "start")
    assert started[:2] == [first, alone]
    assert sorted(started) == sorted([first, alone, *backlog, behind])
    assert started.index(behind) > started.index(backlog[-1])


def test_a_stale_update_is_settled_and_not_run(make_pipeline: MakePipeline) -> None:
    # Given updates that have waited for an hour, and one inline query that has not
    pipeline = make_pipeline(STALE="skip")
    [text] = pipeline.push(message(1, chat=7))
    late, fresh = push(pipeline, "inline_query", 7), push(pipeline, "inline_query", 8)
    behind = push(pipeline, "poll_answer", 7)
    pipeline.poller()
    until(lambda: pipeline.count("appended") == 4)
    for update in (text, late, behind):
        pipeline.redis.hincrby(keys.message(f"{BOT_ID}:{update}"), "seq", -3_600_000_000)
    # When a worker starts
    worker = pipeline.worker("prefork", 1)
    pipeline.drained()
    # Then the inline query that Telegram no longer accepts is settled without a run, and its chat continues
    assert set(pipeline.happened("start")) == {text, fresh, behind}
    assert (pipeline.count("skipped"), pipeline.count("settled")) == (1, 4)
    assert f"{BOT_ID}:{late}: not run: its inline_query is 36" in worker.log
    assert pipeline.leftovers() == []


def test_a_group_with_a_stale_update_is_run(make_pipeline: MakePipeline) -> None:
    # Given a group that has waited for an hour when another update joins it, and a single update as old
    settings = {"COLLECT": f"{__name__}:by_user", "COLLECT_QUIET": 60, "COLLECT_MAX_WAIT": 300, "COLLECT_MAX": 2}
    pipeline = make_pipeline(STALE="skip", **settings)
    pipeline.poller()
    first, single = push(pipeline, "inline_query", 7), push(pipeline, "inline_query", 8)
    until(lambda: pipeline.count("appended") == 2)
    for update in (first, single):
        pipeline.redis.hincrby(keys.message(f"{BOT_ID}:{update}"), "seq", -3_600_000_000)
    fresh = push(pipeline, "inline_query", 7)
    until(lambda: pipeline.count("collected") == 1)
    # When a worker starts
    pipeline.worker("prefork", 1)
    pipeline.drained()
    # Then the group is run, because nothing says how old its newest update is; the single one is not
    assert (pipeline.happened("start"), pipeline.count("skipped")) == ([fresh], 1)
