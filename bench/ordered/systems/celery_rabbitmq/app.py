"""Quorum queues, which RabbitMQ writes to disk with fsync before it confirms, published with confirms; each has a
single active consumer with one slot, which prefetches one.

https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/rabbitmq.html
https://www.rabbitmq.com/docs/consumers#single-active-consumer

A retry waits a second: a shorter delay is refused on quorum queues. RabbitMQ drops a worker that was silent for two
times `broker_heartbeat`.
"""

from zlib import crc32

import referee
from celery import Celery
from kombu import Exchange, Queue

ARGUMENTS = {"x-queue-type": "quorum", "x-single-active-consumer": True}
exchange = Exchange("lanes", type="topic")
QUEUES = [Queue(f"lane.{number}", exchange, f"lane.{number}", queue_arguments=ARGUMENTS) for number in range(8)]

app = Celery("referee", broker=referee.URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    broker_heartbeat=max(1, referee.LEASE_S // 2),
    task_queues=QUEUES,
    task_routes=lambda name, args, kwargs, options, task=None, **more: {
        "queue": QUEUES[crc32(args[0].encode()) % len(QUEUES)].name
    },
)


@app.task(
    autoretry_for=(referee.PlannedFailureError,),
    max_retries=referee.ATTEMPTS - 1,
    default_retry_delay=1,
)
def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    referee.handle(key, number, work_ms, fails)
