"""Sessions stay exact when workers or Redis die: every change is stored exactly once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from celery_lanes.embedded_server import start_server
from tests.pipeline.conftest import MakePipeline
from tests.support.history import ids
from tests.support.pipeline import BOT_ID, Pipeline, message
from tests.support.waiting import until


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """Servers that are stopped after the test."""
    with ExitStack() as stack:
        yield stack


def test_two_messages_of_a_chat_keep_both_changes(pipeline: Pipeline, tmp_path: Path) -> None:
    """Without order: read, read, write, write. This is the lost update of grammY's guide to scaling."""
    # Given two workers, and three messages of a chat that arrive at the same time
    for _ in range(2):
        pipeline.worker("threads", 4)
    pipeline.poller()
    pipeline.push(*(message(n, chat=7, do="counts_at:a") for n in (1, 2, 3)))
    # When the first has read the session, and pauses
    until((tmp_path / "a.read").exists)
    pipeline.open("a")
    pipeline.drained()
    # Then the others read its change
    assert pipeline.session(7) == {"n": 3}
    pipeline.check_once_each()


def test_sessions_are_exact_when_workers_and_redis_are_killed(
    make_pipeline: MakePipeline, tmp_path: Path, running: ExitStack
) -> None:
    # Given 30 chats that count their 20 messages each, some of which fail once after counting
    chats, each = 30, 20
    redis = running.enter_context(start_server(tmp_path / "redis"))
    pipeline = make_pipeline(redis_url=redis.url, LEASE_SECONDS=2, MAX_ATTEMPTS=100, RETRY_BACKOFF=0)
    pipeline.push(
        *(
            message(n, chat, do="counts:1" + (" fails:1" if n % 7 == 3 else ""))
            for n in range(1, each + 1)
            for chat in range(1, chats + 1)
        )
    )
    pipeline.poller()
    workers = [pipeline.worker("prefork", 2), pipeline.worker("threads", 8)]
    # When workers are killed at random moments, and Redis once
    killed = []
    for number, share in enumerate((0.1, 0.3, 0.5, 0.7)):
        pipeline.some_ended(int(chats * each * (share + random.uniform(0, 0.1))))
        if number == 2:
            redis.kill()
            running.enter_context(start_server(tmp_path / "redis", port=redis.port))
        victim = workers.pop(0)
        victim.kill_all()
        killed.append(victim)
        workers.append(pipeline.worker(*random.choice([("prefork", 2), ("threads", 8)])))
    pipeline.drained()
    # Then each message has counted once
    assert [pipeline.session(chat) for chat in range(1, chats + 1)] == [{"n": each}] * chats
    pipeline.check_order(*killed)
    assert pipeline.leftovers() == []


@pytest.mark.parametrize(("name", "slots"), [("threads", 2), ("prefork", 1)])
def test_a_frozen_worker_that_wakes_too_late_changes_no_session(
    make_pipeline: MakePipeline, tmp_path: Path, name: str, slots: int
) -> None:
    # Given a worker that is frozen beyond its lease, while a handler has read its session and not written it
    pipeline = make_pipeline(LEASE_SECONDS=3)
    frozen = pipeline.worker(name, slots)
    first, second = pipeline.push(message(0, chat=7, do="counts_at:a"), message(0, chat=7, do="counts:1"))
    pipeline.poller()
    until((tmp_path / "a.read").exists)
    frozen.freeze()
    # When another worker has run both updates of the chat
    pipeline.open("a")
    pipeline.worker("threads", 2)
    pipeline.drained()
    assert pipeline.session(7) == {"n": 2}
    # Then the change of the frozen handler is refused when it ends after the thaw
    frozen.thaw()
    until(lambda: ids(pipeline.history, "end").count(first) == 2)
    frozen.tells(f"Task tasks.update[{BOT_ID}:{first}] ignored")
    assert pipeline.session(7) == {"n": 2}
    assert ids(pipeline.history, "start") == [first, first, second]


def test_a_committed_update_is_not_run_again(make_pipeline: MakePipeline) -> None:
    # Given an update that counts, and whose process dies right after the commit, before its worker learns of it
    pipeline = make_pipeline(LEASE_SECONDS=2)
    pipeline.worker("prefork", 1)
    pushed = pipeline.push(message(1, chat=7, do="counts:1 dies_after_commit:1"), message(2, chat=7, do="counts:1"))
    pipeline.poller()
    # When the next one has run
    pipeline.drained()
    # Then the first one ran once and is counted once
    assert ids(pipeline.history, "start") == pushed
    assert pipeline.session(7) == {"n": 2}
    assert pipeline.count("settled") == 2
