"""The no-op task in huey. Runs in an environment of its own; `fill` sends what feeding.py reads."""

import os
from typing import Any

from feeding import updates
from huey import RedisHuey

huey = RedisHuey("noop", url=os.environ["BENCH_REDIS"], results=False)


@huey.task()
def noop(update: dict[str, Any]) -> None:
    """What is left is the cost of getting it here."""


def fill() -> None:
    for update in updates():
        noop(update)
