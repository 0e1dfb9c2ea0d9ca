"""The no-op task in rq. Runs in an environment of its own; `fill` sends the updates on stdin."""

import json
import os
import sys
from typing import Any

from redis import Redis
from rq import Queue


def noop(update: dict[str, Any]) -> None:
    """What is left is the cost of getting it here."""


def fill() -> None:
    with Redis.from_url(os.environ["BENCH_REDIS"]) as client:
        queue = Queue("noop", connection=client, serializer="json")
        for line in sys.stdin:
            queue.enqueue("rq_peer.noop", json.loads(line), result_ttl=0)
