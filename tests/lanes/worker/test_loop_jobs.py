"""Jobs on the thread of an event loop: one that waits or blocks delays no other, and each has its own context."""

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

from chatlanes.lanes.protocol.connect import connect
from chatlanes.lanes.protocol.pipelined_pool import PipelinedCommand, PipelinedPool
from chatlanes.lanes.protocol.scripts import script
from chatlanes.lanes.runtime.retry import Retries
from chatlanes.lanes.worker.loop_jobs import LoopJob, LoopJobs, getcurrent
from tests.support.waiting import until

who = ContextVar("who", default="nobody")


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
    # Given a job that waits for an answer of Redis, one in which a script does, and one for which Redis is away
    wires, told, is_back = PipelinedPool(client), set[Any](), threading.Event()

    class Slow:
        """A client whose answer comes when the last job has run."""

        def execute_command(self, *_: object) -> bytes:
            assert is_back.wait(60)
            return b"of a script"

    def away() -> str:
        if not is_back.is_set():
            raise RedisError
        return "at last"

    jobs.begin(lambda: told.add(wires.run(PipelinedCommand(None, ["BLPOP", "errands", 60]))[0][1]))
    jobs.begin(lambda: told.add(script("begin").run(Slow(), [])))  # type: ignore[arg-type]
    jobs.begin(lambda: told.add(Retries(60, lambda: False, lambda: False).until_done(away)))
    # When another one of the same loop answers all of them
    jobs.begin(lambda: (is_back.set(), wires.ask(PipelinedCommand(None, ["RPUSH", "errands", "of Redis"]))))
    # Then each has its answer
    until(lambda: len(told) == 3)
    assert told == {"at last", b"of a script", b"of Redis"}
    wires.close()


def test_jobs_have_nothing_in_common_but_the_thread(jobs: LoopJobs) -> None:
    stack, met, found = LocalStack(), asyncio.Event(), list[Any]()

    def job(name: str) -> Callable[[], None]:
        def run() -> None:
            before = (who.get(), stack.top)
            who.set(name)
            stack.push(name)
            here: LoopJob = getcurrent()
            here.wait(jobs.loop.create_task(met.wait()))
            apart = here.run_blocking(who.get)
            found.append((*before, who.get(), stack.pop(), apart, threading.get_ident()))

        return run

    for name in ("a", "b"):
        jobs.begin(job(name))
    jobs.begin(met.set)
    until(lambda: len(found) == 2)
    thread = found[0][-1]
    # And those that come after them find nothing of theirs
    jobs.begin(job("c"))
    until(lambda: len(found) == 3)
    assert sorted(found) == [("nobody", None, name, name, name, thread) for name in ("a", "b", "c")]


def test_an_end_and_the_end_of_the_time_wake_once(jobs: LoopJobs) -> None:
    # Given a job whose future ends in the very round of the loop in which its time is over
    told = list[Any]()

    def job() -> None:
        here, future = getcurrent(), jobs.loop.create_future()
        jobs.loop.call_soon(future.set_result, "in time")
        told.append(here.wait(future, 0))
        # When it waits again
        told.append(here.wait(jobs.loop.create_future(), 0.01))
        told.append("over")

    jobs.begin(job)
    # Then that was not cut short by what was left of the first wait
    until(lambda: told[-1:] == ["over"])
    assert told[1:] == [False, "over"]
