"""The no-op task in huey. Runs in its own environment; `fill` sends the updates that feeding.py reads."""

import os
from typing import Any

from feeding import updates
from huey import RedisHuey

huey = RedisHuey("noop", url=os.environ["BENCH_REDIS"], results=False)


@huey.task()
def noop(update: dict[str, Any]) -> None:
    """Measures only the cost of delivery."""


def fill() -> None:
    for update in updates():
        noop(update)
