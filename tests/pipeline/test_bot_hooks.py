"""The hooks of a bot, on every pool: `never_retry`, `on_error` and `on_timeout`."""

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


def events_of(events: list[Event], update: int) -> list[tuple[str, int]]:
    """The events of an update with their attempts."""
    return [(event.what, event.attempt) for event in events if event.id == update]


def test_on_error_runs_once_per_attempt(make_pipeline: MakePipeline, pool: tuple[str, int]) -> None:
    # Given an update that fails twice, and one with an error that is never retried; both hooks raise, too
    pipeline = make_pipeline(BOT=BOT, RETRY_BACKOFF=0.01)
    failing, refused, following = pipeline.push(
        message(1, 7, do="fails:2"), message(1, 8, do="refuses:it"), message(2, 8)
    )
    # When they run
    pipeline.poller()
    worker = pipeline.worker(*pool)
    pipeline.drained()
    # Then the first one succeeds in its third attempt, and on_error is called for each failure
    assert events_of(pipeline.history, failing) == [
        *[(what, n) for n in (1, 2) for what in ("start", "raise", "error:RuntimeError")],
        ("start", 3),
        ("end", 3),
    ]
    # And the other one is buried at once, and its chat continues
    assert events_of(pipeline.history, refused) == [("start", 1), ("raise", 1), ("error:BotRefusedError", 1)]
    assert pipeline.dead() == [f"{BOT_ID}:{refused}"]
    assert [problem["type"] for problem in pipeline.problems(f"{BOT_ID}:{refused}")] == ["BotRefusedError"]
    assert events_of(pipeline.history, following) == [("start", 1), ("end", 1)]
    # And the error of the hook is in the log
    worker.tells("the bot's hook on_error failed")


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_the_soft_limit_interrupts_prefork_and_gevent(make_pipeline: MakePipeline, pool: str) -> None:
    # Given an update that never ends, and one whose second attempt does
    pipeline = make_pipeline(BOT=BOT, RETRY_BACKOFF=0.01, UPDATE_TIMEOUT=1, MAX_ATTEMPTS=2)
    endless, once = pipeline.push(message(1, 7, do="sleeps:9"), message(1, 8, do="sleeps:1"))
    # When they run
    pipeline.poller()
    pipeline.worker(pool, POOLS[pool])
    pipeline.drained()
    # Then each attempt that exceeds the limit is interrupted and reported to both hooks
    attempt = ("start", "raise", "timeout", "error:UpdateTimeoutError")
    assert events_of(pipeline.history, endless) == [(what, n) for n in (1, 2) for what in attempt]
    assert events_of(pipeline.history, once) == [*((what, 1) for what in attempt), ("start", 2), ("end", 2)]
    # And the traceback in the dead letters shows where it was
    assert pipeline.dead() == [f"{BOT_ID}:{endless}"]
    problems = pipeline.problems(f"{BOT_ID}:{endless}")
    assert [(problem["type"], problem["attempt"]) for problem in problems] == [
        ("UpdateTimeoutError", 1),
        ("UpdateTimeoutError", 2),
    ]
    assert all("in sleep" in problem["traceback"] for problem in problems)


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_threads_and_solo_only_report_the_soft_limit(make_pipeline: MakePipeline, pool: str) -> None:
    # Given an update that takes longer than its limit
    pipeline = make_pipeline(BOT=BOT, UPDATE_TIMEOUT=1)
    [slow] = pipeline.push(message(1, 7, do="sleeps:9"))
    pipeline.poller()
    pipeline.worker(pool, POOLS[pool])
    # When on_timeout is called while it runs, and then it ends
    until(lambda: pipeline.happened("timeout") == [slow])
    pipeline.open("wake")
    pipeline.drained()
    # Then that was its only attempt
    assert events_of(pipeline.history, slow) == [("start", 1), ("timeout", 1), ("end", 1)]
    assert pipeline.dead() == []


def kinds(events: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """The type and the update of each task event."""
    tasks = [event for event in events if event["type"].startswith("task-")]
    return [(event["type"], int(event["uuid"].partition(":")[2])) for event in tasks]


@contextmanager
def celery_events(redis_url: str) -> Iterator[list[dict[str, Any]]]:
    """The events of the workers, received as Flower receives them."""
    events: list[dict[str, Any]] = []
    with Celery(broker=redis_url, set_as_current=False) as app, app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": events.append})
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False})
        thread.start()
        try:
            yield events
        finally:
            receiver.should_stop = True
            thread.join()


def test_a_handler_past_the_hard_limit_changes_nothing(make_pipeline: MakePipeline, redis_url: str) -> None:
    with celery_events(redis_url) as events:
        exceed_the_hard_limit(make_pipeline, events)


def exceed_the_hard_limit(make_pipeline: MakePipeline, events: list[dict[str, Any]]) -> None:
    # Given a worker of each pool whose only slot runs an update that ignores interrupts
    pipeline = make_pipeline(BOT=BOT, RETRY_BACKOFF=0.01, UPDATE_TIMEOUT=1)
    pipeline.poller()
    workers = {pool: pipeline.worker(pool, 1, is_awaited=False) for pool in POOLS}
    for worker in workers.values():
        worker.tells(" ready.")
    stuck = pipeline.push(*(message(1, chat, do="ignores_interrupts:1") for chat in range(1, len(POOLS) + 1)))
    pipeline.started(*stuck)
    pipeline.push(*(message(2, chat) for chat in range(1, len(POOLS) + 1)))
    # When all exceed the hard limit, and another worker has free slots
    pipeline.worker("threads", 4)
    pipeline.drained()
    # Then each runs again to its end, and the next one of its chat after it
    first = [event for event in pipeline.history if event.what == "start" and event.attempt == 1]
    ran_by = {event.worker: event.id for event in first if event.id in stuck}
    assert {worker.name for worker in workers.values()} == set(ran_by)
    for pool, worker in workers.items():
        happened = events_of(pipeline.history, ran_by[worker.name])
        # (the hook of the first attempt may still run when the second one begins)
        assert [event for event in happened if event[1] == 2] == [("start", 2), ("end", 2)], pool
        worker.tells("its process was killed" if pool == "prefork" else "Its slot stays occupied until it ends")
        if pool != "prefork":  # a killed child calls no hook
            until(lambda: ("error:UpdateTimeoutError", 1) in events_of(pipeline.history, ran_by[worker.name]))  # noqa: B023
        # And a Celery event reports that the attempt failed
        until(lambda: ("task-retried", ran_by[worker.name]) in kinds(events))  # noqa: B023 - waited for here
        until(lambda: kinds(events).count(("task-succeeded", ran_by[worker.name])) == 1)  # noqa: B023
    settled = pipeline.count("settled")
    # When the old handlers finally end
    pipeline.open("wake")
    late = [ran_by[workers[pool].name] for pool in ("threads", "solo", "gevent")]
    until(lambda: all(("raise", 1) in events_of(pipeline.history, update) for update in late))
    [after] = pipeline.push(message(3, 99))
    for worker in workers.values():
        worker.stop()
    # Then their calls are refused, and nothing changes
    pipeline.ended(after)
    pipeline.drained()
    assert pipeline.count("settled") == settled + 1
    assert {chat: answers.count(1) for chat, answers in pipeline.simulator.answers().items()} == {
        **dict.fromkeys(range(1, len(POOLS) + 1), 1),
        99: 0,
    }
    assert pipeline.dead() == []
    until(lambda: ("task-succeeded", after) in kinds(events))
    assert [kinds(events).count(("task-succeeded", update)) for update in stuck] == [1] * len(stuck)
    # And each eviction is reported once
    errors = [event.id for event in pipeline.history if event.what == "error:UpdateTimeoutError"]
    assert sorted(errors) == sorted(late)
