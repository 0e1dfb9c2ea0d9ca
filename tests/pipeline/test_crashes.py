"""Pollers, workers and Redis are killed under load: every update runs to its end, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from celery_lanes.embedded_server import start_server
from celery_lanes.leases.pending_acks import RECOVERY
from celery_lanes.monitoring import inspection
from celery_lanes.monitoring.inspection import Histogram
from tests.pipeline.conftest import MakePipeline
from tests.support.history import ids
from tests.support.pipeline import Pipeline, conversations, message
from tests.support.process import Process
from tests.support.waiting import until


def test_a_killed_poller_loses_and_repeats_nothing(pipeline: Pipeline) -> None:
    # Given a worker, and 1,500 updates that wait at Telegram
    pipeline.worker("threads", 8)
    pipeline.push(*conversations(chats=60, each=25))
    # When two pollers are killed one after the other while they poll
    for confirmed in (200, 800):
        poller = pipeline.poller()
        until(lambda: pipeline.simulator.stats()["confirmed"] >= confirmed)  # noqa: B023 - waited for here
        poller.kill_all()
    # Then a third one fetches the rest, and each update has run once
    pipeline.poller()
    pipeline.drained()
    pipeline.check_once_each()
    assert pipeline.count("settled") == 1500


@pytest.mark.parametrize(("name", "slots"), [("prefork", 2), ("threads", 8)])
def test_messages_of_a_killed_worker_run_elsewhere_in_order(make_pipeline: MakePipeline, name: str, slots: int) -> None:
    # Given two workers in the middle of 600 updates of 40 chats, in each of which one update waits at a gate
    pipeline = make_pipeline(LEASE_SECONDS=2)
    survivor = pipeline.worker(name, slots)
    victim = pipeline.worker(name, slots)
    chats, nth = 40, 5
    ids = pipeline.push(
        *(message(n, chat, do="gate:a" if n == nth else "") for n in range(1, 16) for chat in range(1, chats + 1))
    )
    gated = set(ids[(nth - 1) * chats : nth * chats])
    pipeline.poller()
    until(lambda: all(len(running(pipeline, worker) & gated) == slots for worker in (survivor, victim)))
    held = running(pipeline, victim)
    # When one is killed with all its children, as by a power failure
    victim.kill_all()
    pipeline.open("a")
    # Then everything runs, in order
    pipeline.drained()
    pipeline.check_order(victim)
    assert pipeline.leftovers() == []
    # And the other worker ran the updates that were in flight in the killed one
    assert held <= {event.id for event in pipeline.history if (event.what, event.worker) == ("end", survivor.name)}
    # And the metrics show how long the recovery took: at least a lease
    expired = pipeline.count("expired")
    until(lambda: sum(recovery(pipeline).buckets) == expired)
    assert len(held) <= expired
    assert recovery(pipeline).sum_s >= 2 * expired


def recovery(pipeline: Pipeline) -> Histogram:
    return inspection.times(pipeline.redis).get((RECOVERY, "updates"), Histogram())


def running(pipeline: Pipeline, worker: Process) -> set[int]:
    """The updates that this worker has started and not ended."""
    events = [event for event in pipeline.history if event.worker == worker.name]
    return set(ids(events, "start")) - set(ids(events, "end"))


@pytest.mark.parametrize(("name", "slots"), [("prefork", 2), ("threads", 8), ("gevent", 50)])
def test_redis_is_killed_and_started_again_under_load(
    make_pipeline: MakePipeline, tmp_path: Path, name: str, slots: int
) -> None:
    # Given a poller and a worker in the middle of 600 updates
    redis = start_server(tmp_path / "redis")
    pipeline = make_pipeline(redis_url=redis.url, LEASE_SECONDS=2)
    pipeline.push(*conversations(chats=50, each=12))
    pipeline.poller()
    worker = pipeline.worker(name, slots)
    pipeline.some_ended(100)
    # When Redis is killed, and starts again with its data on disk
    redis.kill()
    worker.tells("lanes: Redis does not answer the lease renewal")
    with start_server(tmp_path / "redis", port=redis.port):
        # Then poller and worker reconnect by themselves, and everything runs in order
        pipeline.drained()
        pipeline.check_order()
        assert pipeline.leftovers() == []
