"""The no-op task in huey. Runs in an environment of its own; `fill` sends the updates on stdin."""

import json
import os
import sys
from typing import Any

from huey import RedisHuey

huey = RedisHuey("noop", url=os.environ["BENCH_REDIS"], results=False)


@huey.task()
def noop(update: dict[str, Any]) -> None:
    """What is left is the cost of getting it here."""


def fill() -> None:
    for line in sys.stdin:
        noop(json.loads(line))
