"""The no-op task in dramatiq. Runs in its own environment; `fill` sends the updates that feeding.py reads."""

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from feeding import updates

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS"]))


@dramatiq.actor
def noop(update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


def fill() -> None:
    for update in updates():
        noop.send(update)
