"""SIGTERM while Redis hangs: a frozen Redis accepts connections and commands, and does not reply."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests

from celery_lanes.embedded_server import Server, free_port
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.outages.test_outages import PLAIN, WHERE, frozen, own_redis
from tests.support.pipeline import Pipeline, message, one_chat_each
from tests.support.process import Process
from tests.support.waiting import until

__all__ = ["own_redis"]

#: The promised limits, and the additional time that a loaded machine may need to end a Python process.
WORKER_WITHIN_S, POLLER_WITHIN_S, LOADED_S = 10.0, 2.0, 2.0
WEBHOOK_SECRET = "webhook-secret"
PLAIN_POOLS = [cell for cell in WHERE if cell[0] == PLAIN]


def assert_ends_within(process: Process, seconds: float, since_s: float) -> None:
    until(lambda: not process.is_running())
    assert time.monotonic() - since_s < seconds + LOADED_S, process.log
    assert process.exit_code() == 0


def test_idle_workers_end(make_pipeline: MakePipeline, own_redis: Server) -> None:
    # Given workers that have run an update and have nothing in flight
    pipeline = make_pipeline(redis_url=own_redis.url, QUEUES=len(PLAIN_POOLS))
    pipeline.poller()
    workers = pipeline.start_workers(PLAIN_POOLS)
    pipeline.ended(*pipeline.push(*(message(1, chat) for chat in one_chat_each(PLAIN_POOLS))))
    pipeline.drained()
    with frozen(own_redis):
        # When they are asked to stop
        asked_s = time.monotonic()
        for worker in workers:
            worker.ask_to_stop()
        # Then they end in time
        for worker in workers:
            assert_ends_within(worker, WORKER_WITHIN_S, asked_s)


@pytest.mark.first_only
@pytest.mark.parametrize(("do", "number"), [("gate", 1), ("counts_at", 0)], ids=["a call", "a session"])
def test_workers_end_after_their_handlers(make_pipeline: MakePipeline, own_redis: Server, do: str, number: int) -> None:
    # Given a handler in flight in every pool that waits at a gate and then needs Redis
    pipeline = make_pipeline(redis_url=own_redis.url, QUEUES=len(WHERE), MAX_ATTEMPTS=1, LEASE_SECONDS=5)
    chats = one_chat_each(WHERE)
    in_flight = pipeline.push(*(message(number, chat, do=f"{do}:{chat}") for chat in chats))
    pipeline.poller()
    workers = pipeline.start_workers(WHERE)
    pipeline.started(*in_flight)
    until(lambda: do == "gate" or all((pipeline.directory / f"{chat}.read").exists() for chat in chats))
    with frozen(own_redis):
        # When the workers are asked to stop, they wait for the handlers
        for worker in workers:
            worker.ask_to_stop()
        for worker in workers:
            worker.tells("Warm shutdown")
        # And end after the handlers have ended or failed
        asked_s = time.monotonic()
        for chat in chats:
            pipeline.open(str(chat))
        for worker in workers:
            assert_ends_within(worker, WORKER_WITHIN_S, asked_s)
    # And nothing is lost, and no failure is counted
    pipeline.worker("threads", 8)
    pipeline.drained()
    assert pipeline.dead() == []
    assert set(pipeline.happened("end")) == set(in_flight)


def test_workers_wait_for_running_handlers(make_pipeline: MakePipeline, own_redis: Server) -> None:
    # Given handlers that run for longer than an idle worker would wait
    pipeline = make_pipeline(redis_url=own_redis.url, QUEUES=len(PLAIN_POOLS))
    in_flight = pipeline.push(*(message(0, chat, do="takes:12000") for chat in one_chat_each(PLAIN_POOLS)))
    pipeline.poller()
    workers = pipeline.start_workers(PLAIN_POOLS)
    pipeline.started(*in_flight)
    with frozen(own_redis):
        for worker in workers:
            worker.ask_to_stop()
        # Then they run to their end
        pipeline.ended(*in_flight)
        ended_s = time.monotonic()
        for worker in workers:
            assert_ends_within(worker, WORKER_WITHIN_S, ended_s)


def test_a_poller_ends(make_pipeline: MakePipeline, own_redis: Server) -> None:
    pipeline = make_pipeline(redis_url=own_redis.url)
    poller = start_leader(pipeline)
    with frozen(own_redis):
        asked_s = time.monotonic()
        poller.ask_to_stop()
        assert_ends_within(poller, POLLER_WITHIN_S, asked_s)
    assert "lease of this one expires: Redis did not answer in time\n" in poller.log


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


@pytest.mark.parametrize("what", ["poller", "receiver"])
def test_a_poller_and_a_receiver_that_have_just_started_end(
    make_pipeline: MakePipeline, own_redis: Server, what: str
) -> None:
    # Given a process that starts while Redis hangs, and has connected to it
    pipeline = make_pipeline(redis_url=own_redis.url, WEBHOOK_SECRET=WEBHOOK_SECRET)
    with frozen(own_redis):
        process = pipeline.poller() if what == "poller" else pipeline.receiver(free_port(), is_awaited=False)
        until(lambda: is_connected(process, own_redis.port))
        # When it is asked to stop, then it ends in time
        asked_s = time.monotonic()
        process.ask_to_stop()
        assert_ends_within(process, POLLER_WITHIN_S, asked_s)


def is_connected(process: Process, port: int) -> bool:
    connections = psutil.Process(process.pid).net_connections("tcp")
    return any(each.raddr and each.raddr.port == port for each in connections)


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
