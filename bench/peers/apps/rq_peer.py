"""The no-op task in rq. Runs in its own environment; `fill` sends the updates that feeding.py reads."""

import os
from typing import Any

from feeding import updates
from redis import Redis
from rq import Queue


def noop(update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


def fill() -> None:
    with Redis.from_url(os.environ["BENCH_REDIS"]) as client:
        queue = Queue("noop", connection=client, serializer="json")
        for update in updates():
            queue.enqueue("rq_peer.noop", update, result_ttl=0)
