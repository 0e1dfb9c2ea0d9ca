"""The no-op task in dramatiq. Runs in an environment of its own; `fill` sends the updates on stdin."""

import json
import os
import sys
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS"]))


@dramatiq.actor
def noop(update: dict[str, Any]) -> None:
    """What is left is the cost of getting it here."""


def fill() -> None:
    for line in sys.stdin:
        noop.send(json.loads(line))
