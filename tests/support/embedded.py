"""Tests of an app with lanes that embed its worker, as Celery's testing guide describes: pytest runs this file with the
plugin celery.contrib.pytest (tests/lanes/worker/test_embedded.py).
"""

from __future__ import annotations

import gc
import os
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.exceptions import TaskRevokedError
from kombu import Queue

import celery_lanes as lanes
from tests.support.lab_app import FAST

app = Celery("shop", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
lanes.install(app, fast=FAST)
app.conf.task_queues = [
    Queue("orders", routing_key="orders", queue_arguments=lanes.QUEUE_ARGUMENTS),
    Queue("celery", routing_key="celery"),
]


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(lane="customer:{customer}", shared=False)
def charge(customer: int, total: int) -> int:
    charged.append(total)
    return sum(charged)


charged: list[int] = []


@pytest.fixture
def celery_app() -> Celery:
    return app


@pytest.fixture
def celery_includes() -> list[str]:
    return ["celery.contrib.testing.tasks"]


@pytest.fixture(params=["solo", "threads", "prefork", "solo", "prefork"])
def celery_worker_pool(request: pytest.FixtureRequest) -> str:
    pool: str = request.param
    return pool


def test_worker_in_this_process_runs_lanes(celery_worker: Any) -> None:
    tasks = [add.apply_async((n, 1), queue="orders", headers=lanes.headers([f"customer:{n % 2}"])) for n in range(6)]
    assert [task.get(timeout=30) for task in tasks] == [1, 2, 3, 4, 5, 6]
    assert add.delay(1, 2).get(timeout=30) == 3  # on the ordinary queue
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_a_worker_is_reloaded_for_its_first_task_with_a_lane(pool: str) -> None:
    other = Celery("later", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"], set_as_current=False)
    other.conf.task_default_queue = "later"
    lanes.install(other, fast=FAST)
    with start_worker(other, pool=pool, perform_ping_check=False, shutdown_timeout=60) as worker:

        @other.task(name="double", lane="number:{number}", shared=False)
        def double(number: int) -> int:
            return 2 * number

        worker.reload()
        assert [double.delay(number).get(timeout=30) for number in range(3)] == [0, 2, 4]


def test_start_worker_runs_tasks_with_a_lane_in_order() -> None:
    charged.clear()
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, shutdown_timeout=60):
        charges = [charge.delay(9, total) for total in range(6)]
        assert [each.get(timeout=30) for each in charges] == [0, 1, 3, 6, 10, 15]


def test_the_worker_of_another_app_in_this_process_is_a_stock_one() -> None:
    # Given another app on the same server, and the workers of both in this process, one after the other: Celery's
    # start_worker stops all workers of a process
    other = Celery("other", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"], set_as_current=False)
    other.conf.task_default_queue = "other"
    charged.clear()

    @other.task(name="double", shared=False)
    def double(number: int) -> int:
        return 2 * number

    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, shutdown_timeout=60):
        charges = [charge.delay(9, total) for total in range(6)]
        assert [each.get(timeout=30) for each in charges] == [0, 1, 3, 6, 10, 15]
    with start_worker(other, pool="threads", concurrency=4, perform_ping_check=False, shutdown_timeout=60) as worker:
        # Then each runs the tasks of its app
        assert [double.delay(number).get(timeout=30) for number in range(3)] == [0, 2, 4]
        # And nothing of lanes is in the other one
        parts = [worker.consumer.connection.transport, worker.consumer.pool, *worker.consumer.blueprint.steps.values()]
        assert not [each for each in parts if type(each).__module__.startswith("celery_lanes")]
        assert not hasattr(other, "lanes")
        # And remote control works, although Celery has one set of commands for both apps
        revoked = double.apply_async((1,), countdown=3)
        other.control.revoke(revoked.id)
        with pytest.raises(TaskRevokedError):
            revoked.get(timeout=30)
        [answer] = other.control.broadcast("lanes", reply=True)
        assert list(answer.values()) == [{"error": "its app 'other' has none"}]
