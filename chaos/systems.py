"""What can stand under fire: the lanes, and beside them the usual recipe."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from redis import Redis

from chaos import recipe
from tasks.lanes.store import Store

PYTHON = sys.executable
_WORKER = ("worker", "-l", "INFO")


@dataclass(frozen=True)
class System:
    """Its parts with their commands, which of them fork, and how many updates it holds."""

    order_by: str
    pollers: dict[str, list[str]]
    workers: dict[str, list[str]]
    forking: tuple[str, ...]
    pending: Callable[[Redis], int]

    @property
    def parts(self) -> dict[str, list[str]]:
        return {**self.pollers, **self.workers}


def _lane_worker(pool: str, concurrency: int) -> list[str]:
    return [PYTHON, "-m", "celery", "-A", "tasks", *_WORKER, "-n", f"{pool}@chaos", "-P", pool, "-c", str(concurrency)]


def _recipe_worker(number: int) -> list[str]:
    name = f"queue{number}"
    return [
        PYTHON,
        "-m",
        "celery",
        "-A",
        "chaos.recipe",
        *_WORKER,
        "-n",
        f"{name}@chaos",
        "-c",
        "1",
        "-Q",
        f"updates.{number}",
    ]


def _left_in_queues(client: Redis) -> int:
    return sum(client.llen(f"updates.{number}") for number in range(recipe.QUEUES)) + client.hlen("unacked")


LANES = System(
    order_by="chat+user",
    pollers={name: [PYTHON, "-m", "poller"] for name in ("poller", "standby")},
    workers={
        "prefork": _lane_worker("prefork", 4),
        "threads": _lane_worker("threads", 8),
        "gevent": _lane_worker("gevent", 20),
    },
    forking=("prefork",),
    pending=lambda client: Store(client).pending(),
)

#: By chat alone: a queue can keep one order only.
RECIPE = System(
    order_by="chat",
    pollers={"poller": [PYTHON, "-m", "chaos.recipe"]},
    workers={f"queue{number}": _recipe_worker(number) for number in range(recipe.QUEUES)},
    forking=tuple(f"queue{number}" for number in range(recipe.QUEUES)),
    pending=_left_in_queues,
)
