"""Jobs on the thread of an event loop: a job that waits or blocks delays no other, and each has its own context."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from celery.utils.threads import LocalStack
from redis import Redis
from redis.exceptions import RedisError

from celery_lanes.protocol import Store, connect, plain
from celery_lanes.worker.journal import Retries
from chatlanes.bot.event_loop import LoopJob, LoopJobs, getcurrent
from tests.support.waiting import until

owner = ContextVar("owner", default="none")


@pytest.fixture
def jobs() -> Iterator[LoopJobs]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield LoopJobs(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def client(redis_url: str) -> Iterator[Redis]:
    with connect(redis_url) as client:
        yield client


def test_a_redis_command_blocks_no_other_job(jobs: LoopJobs, client: Redis) -> None:
    # Given a job that waits for a blocking command, and one that retries during an outage
    store, results, is_back = Store(client), set[Any](), threading.Event()

    def unavailable() -> str:
        if not is_back.is_set():
            raise RedisError
        return "after retries"

    jobs.begin(lambda: results.add(store.run(plain("BLPOP", "list", 60))[1]))
    jobs.begin(lambda: results.add(Retries(60, lambda: False, lambda: False).until_done(unavailable)))
    # When another job of the same loop makes both succeed
    jobs.begin(lambda: (is_back.set(), store.ask(plain("RPUSH", "list", "of a command"))))
    # Then each has its result
    until(lambda: len(results) == 2)
    assert results == {"after retries", b"of a command"}
    store.close()


def test_jobs_share_only_the_thread(jobs: LoopJobs) -> None:
    stack, both_wait, found = LocalStack(), asyncio.Event(), list[Any]()

    def job(name: str) -> Callable[[], None]:
        def run() -> None:
            before = (owner.get(), stack.top)
            owner.set(name)
            stack.push(name)
            current: LoopJob = getcurrent()
            current.wait(jobs.loop.create_task(both_wait.wait()))
            in_blocking_call = current.run_blocking(owner.get)
            found.append((*before, owner.get(), stack.pop(), in_blocking_call, threading.get_ident()))

        return run

    for name in ("a", "b"):
        jobs.begin(job(name))
    jobs.begin(both_wait.set)
    until(lambda: len(found) == 2)
    thread = found[0][-1]
    # And a later job sees none of their state
    jobs.begin(job("c"))
    until(lambda: len(found) == 3)
    assert sorted(found) == [("none", None, name, name, name, thread) for name in ("a", "b", "c")]


def test_a_result_and_a_timeout_in_one_iteration_wake_once(jobs: LoopJobs) -> None:
    # Given a job whose future ends in the same iteration of the loop in which its timeout is over
    results = list[Any]()

    def job() -> None:
        current, future = getcurrent(), jobs.loop.create_future()
        jobs.loop.call_soon(future.set_result, "in time")
        results.append(current.wait(future, 0))
        # When it waits again
        results.append(current.wait(jobs.loop.create_future(), 0.01))
        results.append("over")

    jobs.begin(job)
    # Then a second wake-up of the first wait does not cut the second wait short
    until(lambda: results[-1:] == ["over"])
    assert results[1:] == [False, "over"]
