"""The usual recipe for order with stock Celery: each chat hashed to one of eight queues, one `-c 1` worker per queue.

Acknowledges late, as stock_app does; queues are chosen by the same hash as in lanes.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.signals import worker_ready
from kombu import Queue

from bench.apps import slow_chat
from bench.measure.scale import QUEUES, READY

app = Celery("bench")
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    task_queues=[Queue(f"updates.{n}") for n in range(QUEUES)],
)


@app.task(name="bench.noop")
def noop(update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


@app.task(name="bench.chat")
def chat(update: dict[str, Any]) -> None:
    slow_chat.handle(update)


@worker_ready.connect
def say_ready(**_: Any) -> None:
    print(READY, flush=True)
