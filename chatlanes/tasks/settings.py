"""The settings of this worker or Flower, read once, and the Celery options that follow from them."""

import sys
from functools import cache
from typing import Any

from kombu import Exchange, Queue

from chatlanes import lanes
from chatlanes.logs import Secrets
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.tasks.time_limits import HARD_LIMIT_AFTER_S
from chatlanes.updates.connection import ssl_options

#: For tasks of your own that need no order.
ORDINARY_QUEUE = "celery"


@cache
def settings() -> Settings:
    """The settings of this process. A wrong one ends it with the sentence that says what is wrong."""
    try:
        return load()
    except SettingsError as error:
        sys.exit(str(error))


@cache
def secrets() -> Secrets:
    """What this process must neither store nor send."""
    return Secrets.of(settings())


def celery_options() -> dict[str, Any]:
    """Every option that is not Celery's default, with its reason."""
    now = settings()
    return {
        "imports": ("chatlanes.tasks.update",),
        "broker_url": now.redis_url,
        "broker_use_ssl": ssl_options(now),
        "broker_transport_options": {
            "lease_seconds": now.lease_seconds,
            "max_deaths": now.max_attempts,
            "master_name": now.sentinel_master,
            # A server that is down must be noticed within seconds, also by a publisher that waits for its answer.
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
        },
        "task_queues": [
            *(_queue(name, lanes.FIRST_QUEUE_ARGUMENTS) for name in express_queues(now)),
            *(_queue(name, lanes.QUEUE_ARGUMENTS) for name in queue_names(now)),
            Queue(ORDINARY_QUEUE, Exchange(""), ORDINARY_QUEUE),
        ],
        # A misspelt queue would be created, and no worker would read it.
        "task_create_missing_queues": False,
        # Pickle runs whatever code a message holds.
        "accept_content": ["json"],
        # Nobody reads the result of an update, and each would stay in Redis for a day.
        "task_ignore_result": True,
        # The soft limit interrupts a handler; the hard one ends it.
        "task_soft_time_limit": now.update_timeout,
        "task_time_limit": now.update_timeout + HARD_LIMIT_AFTER_S if now.update_timeout else None,
    }


def queue_names(now: Settings) -> list[str]:
    """Those of every bot. With BOTS also the ones without a name: a bot that was alone may have left updates there."""
    return list(dict.fromkeys(name for settings in (*now.served, now) for name in settings.queue_names))


def express_queues(now: Settings) -> dict[str, list[str]]:
    """The express queue of each bot, and its other queues."""
    return {settings.express_queue: settings.queue_names for settings in (*now.served, now)}


def _queue(name: str, arguments: dict[str, Any]) -> Queue:
    return Queue(name, Exchange(""), name, queue_arguments=arguments)
