"""A bot with hooks, on every pool: errors that are never retried, failures and timeouts that it is told of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery

from tests.pipeline.conftest import POOLS, MakePipeline
from tests.support.history import Event
from tests.support.pipeline import BOT_ID, message
from tests.support.waiting import until

BOT = "tests.support.bots:bot"


def story(events: list[Event], update: int) -> list[tuple[str, int]]:
    """What happened to an update, with its attempts."""
    return [(event.what, event.attempt) for event in events if event.id == update]


def test_on_error_runs_once_per_attempt(make_pipeline: MakePipeline, pool: tuple[str, int]) -> None:
    # Given an update that fails twice, and one with an error that is never retried; both hooks fail themselves
    pipeline = make_pipeline(BOT=BOT, RETRY_BACKOFF=0.01)
    failing, refused, following = pipeline.push(
        message(1, 7, do="fails:2"), message(1, 8, do="refuses:it"), message(2, 8)
    )
    # When they run
    pipeline.poller()
    worker = pipeline.worker(*pool)
    pipeline.drained()
    # Then the first one ran to its end at its third attempt, and each failure was told
    assert story(pipeline.history, failing) == [
        *[(what, n) for n in (1, 2) for what in ("start", "raise", "error:RuntimeError")],
        ("start", 3),
        ("end", 3),
    ]
    # And the other one was buried at once, and its chat went on
    assert story(pipeline.history, refused) == [("start", 1), ("raise", 1), ("error:BotRefusedError", 1)]
    assert pipeline.dead() == [f"{BOT_ID}:{refused}"]
    assert [problem["type"] for problem in pipeline.problems(f"{BOT_ID}:{refused}")] == ["BotRefusedError"]
    assert story(pipeline.history, following) == [("start", 1), ("end", 1)]
    # And what the hook raised is in the log
    worker.tells("the bot's hook on_error failed")


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_the_soft_limit_interrupts_where_the_pool_can(make_pipeline: MakePipeline, pool: str) -> None:
    # Given an update that never ends, and one whose second attempt does
    pipeline = make_pipeline(BOT=BOT, RETRY_BACKOFF=0.01, UPDATE_TIMEOUT=1, MAX_ATTEMPTS=2)
    endless, once = pipeline.push(message(1, 7, do="sleeps:9"), message(1, 8, do="sleeps:1"))
    # When they run
    pipeline.poller()
    pipeline.worker(pool, POOLS[pool])
    pipeline.drained()
    # Then each attempt that took too long was interrupted, and told to both hooks
    attempt = ("start", "raise", "timeout", "error:UpdateTimeoutError")
    assert story(pipeline.history, endless) == [(what, n) for n in (1, 2) for what in attempt]
    assert story(pipeline.history, once) == [*((what, 1) for what in attempt), ("start", 2), ("end", 2)]
    # And the dead letters say where it was
    assert pipeline.dead() == [f"{BOT_ID}:{endless}"]
    problems = pipeline.problems(f"{BOT_ID}:{endless}")
    assert [(problem["type"], problem["attempt"]) for problem in problems] == [
        ("UpdateTimeoutError", 1),
        ("UpdateTimeoutError", 2),
    ]
    assert all("in sleep" in problem["traceback"] for problem in problems)


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_thread_is_only_told_of_at_the_soft_limit(make_pipeline: MakePipeline, pool: str) -> None:
    # Given an update that takes longer than its limit
    pipeline = make_pipeline(BOT=BOT, UPDATE_TIMEOUT=1)
    [slow] = pipeline.push(message(1, 7, do="sleeps:9"))
    pipeline.poller()
    pipeline.worker(pool, POOLS[pool])
    # When the bot is told of it while it runs, and it ends
    until(lambda: pipeline.happened("timeout") == [slow])
    pipeline.open("wake")
    pipeline.drained()
    # Then that was its only attempt
    assert story(pipeline.history, slow) == [("start", 1), ("timeout", 1), ("end", 1)]
    assert pipeline.dead() == []


def kinds(heard: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Kind of event and update."""
    tasks = [event for event in heard if event["type"].startswith("task-")]
    return [(event["type"], int(event["uuid"].partition(":")[2])) for event in tasks]


@contextmanager
def celery_events(redis_url: str) -> Iterator[list[dict[str, Any]]]:
    """What Celery's workers tell everyone about tasks, as Flower hears it."""
    heard: list[dict[str, Any]] = []
    with Celery(broker=redis_url, set_as_current=False) as app, app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": heard.append})
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False})
        thread.start()
        try:
            yield heard
        finally:
            receiver.should_stop = True
            thread.join()


def test_a_handler_past_the_hard_limit_changes_nothing(make_pipeline: MakePipeline, redis_url: str) -> None:
    with celery_events(redis_url) as heard:
        beyond_the_hard_limit(make_pipeline, heard)


def beyond_the_hard_limit(make_pipeline: MakePipeline, heard: list[dict[str, Any]]) -> None:
    # Given a worker of each pool, whose only slot is taken by an update that no interruption ends
    pipeline = make_pipeline(BOT=BOT, RETRY_BACKOFF=0.01, UPDATE_TIMEOUT=1)
    pipeline.poller()
    workers = {pool: pipeline.worker(pool, 1, is_awaited=False) for pool in POOLS}
    for worker in workers.values():
        worker.tells(" ready.")
    deaf = pipeline.push(*(message(1, chat, do="deaf:1") for chat in range(len(POOLS))))
    pipeline.started(*deaf)
    pipeline.push(*(message(2, chat) for chat in range(len(POOLS))))
    # When all are over the hard limit, and somebody has a free slot
    pipeline.worker("threads", 4)
    pipeline.drained()
    # Then each ran again, to its end, and the next one of its chat after it
    first = [event for event in pipeline.history if event.what == "start" and event.attempt == 1]
    ran_by = {event.worker: event.id for event in first if event.id in deaf}
    assert {worker.name for worker in workers.values()} == set(ran_by)
    for pool, worker in workers.items():
        happened = story(pipeline.history, ran_by[worker.name])
        # (the hook of the first attempt may still be telling when the second one begins)
        assert [event for event in happened if event[1] == 2] == [("start", 2), ("end", 2)], pool
        worker.tells("its process was killed" if pool == "prefork" else "Its slot stays occupied until it ends")
        if pool != "prefork":  # a child that was killed tells nothing
            until(lambda: ("error:UpdateTimeoutError", 1) in story(pipeline.history, ran_by[worker.name]))  # noqa: B023
        # And Celery was told that the attempt failed
        state = "task-failed" if pool == "prefork" else "task-retried"
        until(lambda: (state, ran_by[worker.name]) in kinds(heard))  # noqa: B023 - waited for here
        until(lambda: kinds(heard).count(("task-succeeded", ran_by[worker.name])) == 1)  # noqa: B023
    settled = pipeline.count("settled")
    # When the old handlers end at last
    pipeline.open("wake")
    late = [ran_by[workers[pool].name] for pool in ("threads", "solo", "gevent")]
    until(lambda: all(("raise", 1) in story(pipeline.history, update) for update in late))
    [after] = pipeline.push(message(3, 99))
    for worker in workers.values():
        worker.stop()
    # Then their answers were refused, and nothing has changed
    pipeline.ended(after)
    pipeline.drained()
    assert pipeline.count("settled") == settled + 1
    assert {chat: answers.count(1) for chat, answers in pipeline.simulator.answers().items()} == {
        **dict.fromkeys(range(len(POOLS)), 1),
        99: 0,
    }
    assert pipeline.dead() == []
    until(lambda: ("task-succeeded", after) in kinds(heard))
    assert [kinds(heard).count(("task-succeeded", update)) for update in deaf] == [1] * len(deaf)
    # And each eviction was told once
    errors = [event.id for event in pipeline.history if event.what == "error:UpdateTimeoutError"]
    assert sorted(errors) == sorted(late)
