"""Quorum queues, which RabbitMQ writes to disk with fsync before it confirms, published with confirms; each has a
single active consumer with one slot, which prefetches one: of several, those behind one that fails would run first.

https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/rabbitmq.html
https://www.rabbitmq.com/docs/consumers#single-active-consumer

A message that fails is rejected and requeued: with a delivery limit it returns to the head of its queue
(https://www.rabbitmq.com/docs/3.13/quorum-queues#repeated-requeues). A retry of Celery would be behind the others.

RabbitMQ drops a worker that was silent for two times `broker_heartbeat`. Below five seconds, its documentation expects
that it drops living ones (https://www.rabbitmq.com/docs/heartbeats), and a solo worker sends none while a task runs.
"""

from typing import Any
from zlib import crc32

import referee
from celery import Celery
from celery.exceptions import Reject
from kombu import Exchange, Queue

ARGUMENTS = {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": 20}
exchange = Exchange("lanes", type="topic")
QUEUES = [
    Queue(f"lane.{number}", exchange, f"lane.{number}", queue_arguments=ARGUMENTS) for number in range(referee.SLOTS)
]

app = Celery("referee", broker=referee.URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    broker_heartbeat=max(5, referee.LEASE_S // 2),
    task_queues=QUEUES,
    task_routes=lambda name, args, kwargs, options, task=None, **more: {
        "queue": QUEUES[crc32(args[0].encode()) % len(QUEUES)].name
    },
)


@app.task(bind=True)
def handle(self: Any, key: str, number: int, work_ms: int, fails: int) -> None:
    try:
        referee.handle(key, number, work_ms, fails)
    except referee.PlannedFailureError as error:
        failed_before = int(self.request.get("x-delivery-count") or 0)
        raise Reject(error, requeue=failed_before < referee.ATTEMPTS - 1) from None
