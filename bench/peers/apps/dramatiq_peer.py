"""The no-op task in dramatiq. Runs in an environment of its own; `fill` sends what feeding.py reads."""

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from feeding import updates

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS"]))


@dramatiq.actor
def noop(update: dict[str, Any]) -> None:
    """What is left is the cost of getting it here."""


def fill() -> None:
    for update in updates():
        noop.send(update)
