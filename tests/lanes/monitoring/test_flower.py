"""A real Flower with a real worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from celery_lanes.embedded_server import HOST, free_port
from tests.support.lab import Lab
from tests.support.lab_app import GATES, HISTORY
from tests.support.process import Process
from tests.support.waiting import until
from tests.support.worker import CELERY, environment

pytestmark = pytest.mark.slow


@pytest.fixture
def flower(lab: Lab, tmp_path: Path) -> Iterator[str]:
    """Run Flower; yields its address."""
    port = free_port()
    env = environment(lab.settings, {HISTORY: os.devnull, GATES: str(tmp_path), "FLOWER_UNAUTHENTICATED_API": "true"})
    flower = Process("flower", [*CELERY, "flower", f"--address={HOST}", f"--port={port}"], tmp_path, env)
    yield f"http://{HOST}:{port}"
    flower.end()


def get_json(address: str, path: str) -> Any:
    """Flower's JSON response; None if there is none."""
    with suppress(requests.ConnectionError):
        response = requests.get(f"{address}{path}", timeout=30)
        return response.json() if response.ok else None
    return None


def test_flower_shows_workers_tasks_and_queue_lengths(lab: Lab, flower: str) -> None:
    # Given Flower, and a worker that has run two messages and runs a third
    lab.publish("waits:1", ["other"], queue="orders.3")
    lab.publish("waits:2", ["another"], queue="orders.3")
    until(lambda: get_json(flower, "/api/workers") is not None)
    lab.worker("prefork", 2, "-Q", "orders.0,orders.3", "--prefetch-multiplier", "1")
    lab.ended("waits:1", "waits:2")
    lab.publish("running", ["lane"], gate="open")
    lab.started("running")
    # Then Flower shows the worker and the state of its tasks
    until(lambda: "w1@test" in (get_json(flower, "/api/workers?refresh=true") or {}))
    until(lambda: _state(flower, "running") == "STARTED")
    lab.open("open")
    until(lambda: _state(flower, "running") == "SUCCESS")
    assert _state(flower, "waits:1") == "SUCCESS"
    # And the length of a lane queue is the number of its ready messages
    until(lambda: lab.app.control.cancel_consumer("orders.3", destination=["w1@test"], reply=True, timeout=5, limit=1))
    lab.publish("left:1", ["x"], queue="orders.3")
    lab.publish("left:2", ["y"], queue="orders.3")
    lab.publish("behind", ["y"], queue="orders.3")
    until(lambda: _length(flower, "orders.3") == 2)


def _state(flower: str, message_id: str) -> str | None:
    info: dict[str, str] = get_json(flower, f"/api/task/info/{message_id}") or {}
    return info.get("state")


def _length(flower: str, queue: str) -> int | None:
    lengths = get_json(flower, "/api/queues/length") or {}
    return next((each["messages"] for each in lengths.get("active_queues", ()) if each["name"] == queue), None)
