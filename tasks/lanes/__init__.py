"""Ordered, leased, crash-safe delivery for any Celery app on Redis.

Messages that share a lane key start in the order they were published and never overlap, on any number of workers,
whatever dies. Promises at least one run of each message; knows nothing of Telegram.

    app = Celery("shop", broker="redis://localhost/0")
    lanes.install(app)
    app.conf.task_queues = [Queue("orders", queue_arguments=lanes.QUEUE_ARGUMENTS)]

    charge.apply_async((order,), queue="orders", headers=lanes.headers(["customer:9"]))
"""

from tasks.lanes.answers import Begun, Kind, Noted, Outcome
from tasks.lanes.channel import FIRST_QUEUE_ARGUMENTS, QUEUE_ARGUMENTS
from tasks.lanes.commands import Delete, Move, Set
from tasks.lanes.delivery import Delivery
from tasks.lanes.errors import LanesError, LeaseLost, Misconfigured, PublishRefused, RedisAway, ServerUnfit
from tasks.lanes.install import Lanes, install
from tasks.lanes.journal import Journal
from tasks.lanes.publish import headers
from tasks.lanes.task import LaneTask

__all__ = [
    "FIRST_QUEUE_ARGUMENTS",
    "QUEUE_ARGUMENTS",
    "Begun",
    "Delete",
    "Delivery",
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
    "PublishRefused",
    "RedisAway",
    "ServerUnfit",
    "Set",
    "headers",
    "install",
]
