"""The tasks of the shop of a chaos run (shop.py): what they do, their keys, and what its database has.

Several of one transaction are added at once, so that they wait for permits. Numbers grow in the order of the calls.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import random

from celery import shared_task

import celery_lanes as lanes
from celery_lanes.protocol import Limited, Paced
from chaos.systems.recording import message_id, recorded

KIND, DATABASE = "order", "CHAOS_SHOP"
FILE, QUEUE = "shop.sqlite", "updates.0"
IN_A_TRANSACTION, EVERY_S = 8, 1.5
LONGEST_RUN_S = 0.8
#: The ms from one start to the next of the lane with a rate.
RATE, INTERVAL_MS = "2/s", 500
WAIT_S = 30.0


@shared_task(name="chaos.order")
def order(number: int) -> None:
    """Records its run, which takes some time."""
    with recorded(None, 0, lane_keys(number), kind=KIND, message=message_id()):
        time.sleep(random() * LONGEST_RUN_S)  # noqa: S311 - not secret


def keys(number: int) -> list[str]:
    """One limit, another one, two of them, or a lane with a rate."""
    tenant, bank = lanes.limit("tenant", concurrency=2), lanes.limit("bank", concurrency=2)
    return [[lanes.limit("one", concurrency=1)], [tenant], [bank, tenant], [lanes.limit("paced", rate=RATE)]][
        number % 4
    ]


def limits(number: int) -> dict[str, int]:
    """How many may run with each limit of the task."""
    return {str(key): key.concurrency for key in keys(number) if isinstance(key, Limited)}


def lane_keys(number: int) -> list[str]:
    return [str(key) for key in keys(number) if isinstance(key, Paced)]


def is_rolled_back(number: int) -> bool:
    """A transaction is rolled back as a whole."""
    return number // IN_A_TRANSACTION % 5 == 3


def committed(folder: Path) -> list[int]:
    return [number for (number,) in _select(folder, "SELECT number FROM orders ORDER BY number")]


def unpublished(folder: Path) -> int:
    [(count,)] = _select(folder, "SELECT count(*) FROM celery_lanes_outbox") or [(0,)]
    return int(count)


def _select(folder: Path, query: str) -> Sequence[tuple[int]]:
    """Nothing as long as the shop has no tables."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(folder / FILE, timeout=WAIT_S)) as database:
        return database.execute(query).fetchall()
    return ()
