"""Ordered, leased, crash-safe delivery for any Celery app on Redis.

Messages that share a lane key start in the order in which they were published and never overlap, on any number of
workers, even when workers die. Promises at least one run of each message.

    app = Celery("shop", broker="redis://localhost/0")
    lanes.install(app)

    @app.task(lane="customer:{customer}")
    def charge(customer, total): ...

    charge.delay(9, total=20)
"""

from celery_lanes.errors import (
    Interrupted,
    LanesError,
    LeaseLost,
    Misconfigured,
    PublishRefused,
    RedisAway,
    ServerUnfit,
    UnknownVersion,
)
from celery_lanes.install import Lanes, install
from celery_lanes.protocol import Begun, Delete, Group, Kind, Move, Noted, Outcome, PreviousCall, Set
from celery_lanes.transport.publish import batch, debounce, headers, limit
from celery_lanes.transport.transport import (
    FIRST_QUEUE_ARGUMENTS,
    LAST_QUEUE_ARGUMENTS,
    QUEUE_ARGUMENTS,
    queue_arguments,
)
from celery_lanes.worker.delivery import Delivery
from celery_lanes.worker.journal import Journal
from celery_lanes.worker.task import LaneTask

__all__ = [
    "FIRST_QUEUE_ARGUMENTS",
    "LAST_QUEUE_ARGUMENTS",
    "QUEUE_ARGUMENTS",
    "Begun",
    "Delete",
    "Delivery",
    "Group",
    "Interrupted",
    "Journal",
    "Kind",
    "LaneTask",
    "Lanes",
    "LanesError",
    "LeaseLost",
    "Misconfigured",
    "Move",
    "Noted",
    "Outcome",
    "PreviousCall",
    "PublishRefused",
    "RedisAway",
    "ServerUnfit",
    "Set",
    "UnknownVersion",
    "batch",
    "debounce",
    "headers",
    "install",
    "limit",
    "queue_arguments",
]
