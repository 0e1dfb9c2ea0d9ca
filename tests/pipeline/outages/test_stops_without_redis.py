"""SIGTERM while Redis hangs: a frozen Redis accepts connections and commands, and does not reply."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests

from chatlanes.sandbox.ports import free_port
from chatlanes.sandbox.server import Server
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.outages.test_outages import COROUTINES, PLAIN, frozen, own_redis
from tests.support.pipeline import Pipeline, message
from tests.support.process import Process
from tests.support.waiting import until

__all__ = ["own_redis"]

#: The promised limits, and the additional time that a loaded machine may need to end a Python process.
WORKER_WITHIN_S, POLLER_WITHIN_S, LOADED_S = 10.0, 2.0, 2.0
WEBHOOK_SECRET = "webhook-secret"


def assert_ends_within(process: Process, seconds: float, since_s: float) -> None:
    until(lambda: not process.is_running())
    assert time.monotonic() - since_s < seconds + LOADED_S, process.log
    assert process.exit_code() == 0


def test_an_idle_worker_ends(make_pipeline: MakePipeline, own_redis: Server, pool: tuple[str, int]) -> None:
    # Given a worker that has run an update and has nothing in flight
    pipeline = make_pipeline(redis_url=own_redis.url)
    pipeline.poller()
    worker = pipeline.worker(*pool)
    pipeline.ended(*pipeline.push(message(1, 7)))
    pipeline.drained()
    with frozen(own_redis):
        # When it is asked to stop
        asked_s = time.monotonic()
        worker.ask_to_stop()
        # Then it ends in time
        assert_ends_within(worker, WORKER_WITHIN_S, asked_s)


@pytest.mark.parametrize("do", ["gate:a", "counts_at:a"], ids=["a call", "a session"])
@pytest.mark.parametrize(
    ("bot", "pool", "slots"),
    [
        (PLAIN, "prefork", 2),
        (PLAIN, "threads", 4),
        (PLAIN, "gevent", 10),
        (PLAIN, "solo", 1),
        (COROUTINES, "threads", 4),
        (COROUTINES, "prefork", 2),
    ],
    ids=str,
)
def test_a_worker_ends_after_its_handlers(
    make_pipeline: MakePipeline, own_redis: Server, bot: str, pool: str, slots: int, do: str
) -> None:
    # Given a handler in flight that waits at a gate and then needs Redis
    pipeline = make_pipeline(redis_url=own_redis.url, BOT=bot, MAX_ATTEMPTS=1, LEASE_SECONDS=5)
    [update] = pipeline.push(message(1 if do == "gate:a" else 0, 7, do=do))
    pipeline.poller()
    worker = pipeline.worker(pool, slots)
    pipeline.started(update)
    until(lambda: do == "gate:a" or (pipeline.directory / "a.read").exists())
    with frozen(own_redis):
        # When the worker is asked to stop, it waits for the handler
        worker.ask_to_stop()
        worker.tells("Warm shutdown")
        # And ends after the handler has ended or failed
        asked_s = time.monotonic()
        pipeline.open("a")
        assert_ends_within(worker, WORKER_WITHIN_S, asked_s)
    # And nothing is lost, and no failure is counted
    pipeline.worker("threads", 4)
    pipeline.drained()
    assert pipeline.dead() == []
    assert update in pipeline.happened("end")


def test_a_worker_waits_for_a_running_handler(
    make_pipeline: MakePipeline, own_redis: Server, pool: tuple[str, int]
) -> None:
    # Given a handler that runs for longer than an idle worker would wait
    pipeline = make_pipeline(redis_url=own_redis.url)
    [update] = pipeline.push(message(0, 7, do="takes:12000"))
    pipeline.poller()
    worker = pipeline.worker(*pool)
    pipeline.started(update)
    with frozen(own_redis):
        worker.ask_to_stop()
        # Then it runs to its end
        pipeline.ended(update)
        assert_ends_within(worker, WORKER_WITHIN_S, time.monotonic())


def test_a_poller_ends(make_pipeline: MakePipeline, own_redis: Server) -> None:
    pipeline = make_pipeline(redis_url=own_redis.url)
    poller = start_leader(pipeline)
    with frozen(own_redis):
        asked_s = time.monotonic()
        poller.ask_to_stop()
        assert_ends_within(poller, POLLER_WITHIN_S, asked_s)


def test_a_poller_with_an_unwritten_batch_ends(make_pipeline: MakePipeline, own_redis: Server) -> None:
    pipeline = make_pipeline(redis_url=own_redis.url)
    poller = start_leader(pipeline)
    with frozen(own_redis):
        polls = pipeline.simulator.stats()["polls"]
        pipeline.push(message(1, 7))
        until(lambda: pipeline.simulator.stats()["polls"] > polls or poller.log.count("Redis:"))
        asked_s = time.monotonic()
        poller.ask_to_stop()
        assert_ends_within(poller, POLLER_WITHIN_S, asked_s)
    assert pipeline.simulator.stats()["confirmed"] == 0


def test_a_receiver_answers_open_requests_and_ends(make_pipeline: MakePipeline, own_redis: Server) -> None:
    # Given a receiver that waits for Redis to store an update
    pipeline = make_pipeline(redis_url=own_redis.url, WEBHOOK_SECRET=WEBHOOK_SECRET)
    port = free_port()
    receiver = pipeline.receiver(port)
    assert post(port, 1) == 200
    with frozen(own_redis), ThreadPoolExecutor() as telegram:
        answer = telegram.submit(post, port, 2)
        until(lambda: len(psutil.Process(receiver.pid).net_connections("tcp")) > 1 and not answer.done())
        # When it is asked to stop
        asked_s = time.monotonic()
        receiver.ask_to_stop()
        # Then it ends, and responds with 503, so that Telegram sends the update again
        assert_ends_within(receiver, POLLER_WITHIN_S, asked_s)
        assert answer.result() == 503


def post(port: int, update_id: int) -> int:
    update = {"update_id": update_id, **message(1, 7)}
    return requests.post(
        f"http://127.0.0.1:{port}/hook",
        json=update,
        headers={"X-Telegram-Bot-Api-Secret-Token": WEBHOOK_SECRET},
        timeout=30,
    ).status_code


def start_leader(pipeline: Pipeline) -> Process:
    poller = pipeline.poller()
    poller.tells("leading")
    until(lambda: pipeline.simulator.stats()["polls"])
    return poller
