"""The no-op task in rq. Runs in an environment of its own; `fill` sends what feeding.py reads."""

import os
from typing import Any

from feeding import updates
from redis import Redis
from rq import Queue


def noop(update: dict[str, Any]) -> None:
    """What is left is the cost of getting it here."""


def fill() -> None:
    with Redis.from_url(os.environ["BENCH_REDIS"]) as client:
        queue = Queue("noop", connection=client, serializer="json")
        for update in updates():
            queue.enqueue("rq_peer.noop", update, result_ttl=0)
