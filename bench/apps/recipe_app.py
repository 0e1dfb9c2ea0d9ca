"""The usual recipe for order with stock Celery: each chat hashed to one of eight queues, one `-c 1` worker per queue.

Acknowledges late, as stock_app does; queues are chosen by the same hash as in lanes.
"""

from __future__ import annotations

from celery import Celery
from celery.signals import worker_ready
from kombu import Queue

from bench.apps import no_op, slow_chat
from bench.measure.scale import QUEUES

app = Celery("bench")
app.conf.update(
    task_acks_late=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    task_queues=[Queue(f"updates.{n}") for n in range(QUEUES)],
)

noop = app.task(name="bench.noop")(no_op.handle)
chat = app.task(name="bench.chat")(slow_chat.handle)

worker_ready.connect(no_op.say_ready)
