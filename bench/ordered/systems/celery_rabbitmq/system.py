"""Celery on RabbitMQ: keys hashed to quorum queues with a single active consumer and a standby."""

from bench.ordered.servers import RabbitMQ
from bench.ordered.system import SLOTS, System

SYSTEM = System(
    title="Celery on RabbitMQ, single active consumer",
    claims="in order for each queue, with one consumer at a time, also when it is tried again",
    pages=(
        "https://www.rabbitmq.com/docs/consumers#single-active-consumer",
        "https://www.rabbitmq.com/docs/quorum-queues",
        "https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/rabbitmq.html",
    ),
    server=RabbitMQ,
    worker=(
        *("{bin}/celery", "-A", "app", "worker", "-l", "WARNING", "--without-mingle", "--without-gossip"),
        *("-P", "solo", "-c", "1", "-Q", "lane.{part}", "-n", "w{worker}.{part}@%h"),
    ),
    producer=("{bin}/python", "{home}/produce.py"),
    processes=SLOTS,
)
