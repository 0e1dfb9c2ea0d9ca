"""Redis lost its data or went back to an older state: every process that wrote to it reports the loss.

`lanes check` fails until the loss is acknowledged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from celery_lanes.embedded_server import Server, free_port, start_server
from celery_lanes.protocol import keys
from chatlanes.settings import secret_from
from tests.pipeline.conftest import MakePipeline
from tests.pipeline.monitoring.test_command import command_output
from tests.poller.webhook.process import HEADER
from tests.support.pipeline import TOKEN, Pipeline, message
from tests.support.process import Process
from tests.support.waiting import until

LOST = "CRITICAL"


def post(port: int, number: int, update: dict[str, Any]) -> int:
    """Post an update as Telegram does; returns the status."""
    content = {"update_id": number, **update}
    secret = {HEADER: secret_from(TOKEN)}
    return requests.post(f"http://127.0.0.1:{port}/hook", json=content, headers=secret, timeout=30).status_code


def losses(process: Process) -> list[str]:
    return [line for line in process.log.splitlines() if LOST in line]


def reported_losses(pipeline: Pipeline) -> list[str]:
    return [line for line in command_output(pipeline, "check", code=1).splitlines() if line.startswith("WRONG loss")]


def wait_for_sweep(pipeline: Pipeline) -> None:
    """Wait until a sweep has started and ended."""
    for _ in range(2):
        before = pipeline.redis.get(keys.SWEPT)
        until(lambda: pipeline.redis.get(keys.SWEPT) != before)  # noqa: B023 - waited for here


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A server for this test only, which may lose its data."""
    with start_server(tmp_path / "first") as server:
        yield server


def replace(server: Server, folder: Path) -> Server:
    """Kill the server and start another one at its address, with the data in `folder`."""
    server.kill()
    return start_server(folder, port=server.port)


def start_with_backlog(pipeline: Pipeline) -> tuple[Process, Process]:
    """Start a poller and a worker: ten updates are settled, one runs, and five wait behind it."""
    poller, worker = pipeline.poller(), pipeline.worker("threads", 4)
    pipeline.push(*(message(1, chat) for chat in range(1, 11)))
    pipeline.drained()
    first, *_ = pipeline.push(message(1, 20, do="gate:a"), *(message(n, 20) for n in range(2, 7)))
    pipeline.started(first)
    until(lambda: pipeline.count("appended") == 16)
    until(lambda: pipeline.simulator.stats()["confirmed"] == 16)
    wait_for_sweep(pipeline)
    return poller, worker


def test_an_emptied_server_is_reported_by_poller_and_worker(pipeline: Pipeline) -> None:
    # Given a poller and a worker that started with an empty Redis and report no loss
    poller, worker = start_with_backlog(pipeline)
    assert losses(poller) == losses(worker) == []
    assert "WRONG" not in command_output(pipeline, "check")
    # When the server is emptied, and nothing else happens
    pipeline.redis.flushall()
    # Then both report the lost updates
    until(lambda: losses(poller) and losses(worker))
    for process in (poller, worker):
        [line] = losses(process)
        assert "updates 1 to 16" in line
        assert "; 6 of them were pending when last checked" in line
        assert "Telegram sends again only those that were not confirmed to it." in line
    # And the worker does not claim that its running update will run again elsewhere
    until(lambda: "lost the lease of" in worker.log)  # at a renewal, so while it runs
    pipeline.open("a")
    assert "another worker can run it" not in worker.log
    # And the check fails, with one line for the loss, also after a restart of all processes
    [line] = reported_losses(pipeline)
    assert "updates 1 to 16" in line
    assert "acknowledge-loss" in line
    poller.stop()
    worker.stop()
    poller, worker = pipeline.poller(), pipeline.worker("threads", 4)
    assert reported_losses(pipeline) == [line]
    # Until it is acknowledged
    assert "updates 1 to 16" in command_output(pipeline, "acknowledge-loss")
    assert "WRONG" not in command_output(pipeline, "check")
    assert command_output(pipeline, "acknowledge-loss") == "there is no loss to acknowledge\n"
    # And later updates run and are not reported as lost
    pipeline.push(message(1, 1))
    pipeline.drained()
    assert losses(poller) == losses(worker) == []


def test_an_empty_server_at_the_same_address_is_reported(
    make_pipeline: MakePipeline, own_redis: Server, tmp_path: Path
) -> None:
    # Given a receiver, which writes only when an update arrives, and a worker
    pipeline = make_pipeline(redis_url=own_redis.url)
    port = free_port()
    receiver, worker = pipeline.receiver(port), pipeline.worker("threads", 4)
    for number in (1, 2):
        assert post(port, number, message(number, 7)) == 200
    until(lambda: pipeline.count("settled") == 2)
    wait_for_sweep(pipeline)
    # When an empty server replaces it
    with replace(own_redis, tmp_path / "second"):
        until(lambda: losses(worker))
        until(lambda: post(port, 3, message(3, 7)) == 200)
        # Then the receiver notices it with the next update, which is accepted
        until(lambda: losses(receiver))
        for process in (receiver, worker):
            [line] = losses(process)
            assert "the database is empty or another one: updates 1 to 2 " in line
            assert "none of them were pending when last checked" in line
        until(lambda: pipeline.count("settled") == 1)
        # And both report the same loss
        assert pipeline.redis.hlen(keys.LOSSES) == 1


def test_an_older_state_is_reported_with_the_loss(
    make_pipeline: MakePipeline, own_redis: Server, tmp_path: Path
) -> None:
    # Given a copy of the server's data, like that of a lagging replica
    pipeline = make_pipeline(redis_url=own_redis.url)
    poller, worker = pipeline.poller(), pipeline.worker("threads", 4)
    pipeline.push(*(message(1, chat) for chat in range(1, 11)))
    pipeline.drained()
    until(lambda: pipeline.simulator.stats()["confirmed"] == 10)
    worker.stop()
    shutil.copytree(tmp_path / "first", tmp_path / "second", ignore=shutil.ignore_patterns("*.log", "*lock*"))
    # And seven updates that are not in the copy
    worker = pipeline.worker("threads", 4)
    pipeline.push(*(message(2, chat) for chat in range(1, 8)))
    pipeline.drained()
    until(lambda: pipeline.simulator.stats()["confirmed"] == 17)
    wait_for_sweep(pipeline)
    # When a server with the copy replaces it
    with replace(own_redis, tmp_path / "second"):
        # Then both report which updates are missing
        until(lambda: losses(poller) and losses(worker))
        for process in (poller, worker):
            [line] = losses(process)
            assert "the database went back to an older state: updates 11 to 17 " in line
        assert pipeline.redis.hlen(keys.LOSSES) == 1
        [line] = reported_losses(pipeline)
        assert "updates 11 to 17" in line
