"""Stock Celery on Redis as configured when no task may be lost: kombu's own transport, late acknowledgement.

Does not import lanes: they replace kombu's transport, so one process cannot use both.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_ready

from bench.apps import endless
from bench.apps.bot import record
from bench.measure.scale import READY

app = Celery("bench")
app.conf.update(task_acks_late=True, task_ignore_result=True, broker_connection_retry_on_startup=True)
if release_after := os.environ.get(endless.RELEASE_AFTER):
    app.conf.broker_transport_options = {"visibility_timeout": int(release_after)}


@app.task(name="bench.noop")
def noop(update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


@app.task(name="bench.hold")
def hold(update: dict[str, Any]) -> None:
    endless.handle(update)


@app.task(name="bench.start")
def start(update: dict[str, Any]) -> None:
    record(update)


@worker_ready.connect
def say_ready(**_: Any) -> None:
    print(READY, flush=True)
