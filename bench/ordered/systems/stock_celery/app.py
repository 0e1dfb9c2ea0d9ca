"""Stock Celery when no task may be lost: late acknowledgement, nothing prefetched beyond one, a visibility timeout that
is longer than the longest task (https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html).

A queue for each slot of two machines; a key always has the same one. kombu looks for messages whose timeout is over
each `unacked_restore_interval` x `unacked_restore_throttle` seconds, by default 100; here each second.
"""

from zlib import crc32

import referee
from celery import Celery
from kombu import Queue

QUEUES = [f"lane.{machine}.{number}" for machine in range(2) for number in range(referee.SLOTS)]

app = Celery("referee", broker=referee.URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "visibility_timeout": referee.LEASE_S,
        "unacked_restore_interval": 1,
        "unacked_restore_throttle": 1,
    },
    task_queues=[Queue(name) for name in QUEUES],
    task_routes=lambda name, args, kwargs, options, task=None, **more: {
        "queue": QUEUES[crc32(args[0].encode()) % len(QUEUES)]
    },
)


@app.task(
    autoretry_for=(referee.PlannedFailureError,),
    max_retries=referee.ATTEMPTS - 1,
    default_retry_delay=referee.RETRY_AFTER_S,
)
def handle(key: str, number: int, work_ms: int, fails: int) -> None:
    referee.handle(key, number, work_ms, fails)
