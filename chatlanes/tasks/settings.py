"""The settings of this process (worker or Flower), read once, and the Celery options derived from them."""

import sys
from functools import cache
from typing import Any

from kombu import Exchange, Queue

import celery_lanes as lanes
from chatlanes.logs import Secrets
from chatlanes.logs.process import WRONG_SETTING
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.checks import NO_CONTROL
from chatlanes.updates.connection import ssl_options

#: For the user's own tasks that need no order.
ORDINARY_QUEUE = "celery"

#: The time a handler has for cleanup after the soft limit.
HARD_LIMIT_AFTER_S = 10.0


@cache
def settings() -> Settings:
    """The settings of this process. An invalid setting ends the process with one sentence."""
    try:
        return load()
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the log is not configured yet
        sys.exit(WRONG_SETTING)


@cache
def secrets() -> Secrets:
    """Secrets that this process must neither store nor send."""
    return Secrets.of(settings())


def celery_options() -> dict[str, Any]:
    """Every option that differs from Celery's default, with its reason."""
    now = settings()
    return {
        "imports": ("chatlanes.tasks.update", "chatlanes.tasks.broadcasts"),
        "broker_url": now.redis_url,
        "broker_use_ssl": ssl_options(now),
        "broker_transport_options": {
            "lease_seconds": now.lease_seconds,
            "max_deaths": now.max_attempts,
            "master_name": now.sentinel_master,
            # A server that is down must be detected within seconds, also by a publisher that waits for its reply.
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
        },
        "task_queues": [
            *(_queue(name, lanes.FIRST_QUEUE_ARGUMENTS) for name in express_queues(now)),
            *(_queue(name, lanes.QUEUE_ARGUMENTS) for name in queue_names(now)),
            *(_queue(name, lanes.LAST_QUEUE_ARGUMENTS) for name in broadcast_queues(now)),
            Queue(ORDINARY_QUEUE, Exchange(""), ORDINARY_QUEUE),
        ],
        "lanes_control": any(each.control != NO_CONTROL for each in now.served),
        # A misspelt queue would be created, and no worker would read it.
        "task_create_missing_queues": False,
        # Unpickling a message can run arbitrary code.
        "accept_content": ["json"],
        # The result of an update is never read, and each would stay in Redis for a day.
        "task_ignore_result": True,
        # The soft limit interrupts a handler; the hard limit kills it.
        "task_soft_time_limit": now.update_timeout,
        "task_time_limit": now.update_timeout + HARD_LIMIT_AFTER_S if now.update_timeout else None,
    }


def queue_names(now: Settings) -> list[str]:
    """The queues of every bot. With BOTS also the unnamed ones, which may hold updates from before BOTS was set."""
    return list(dict.fromkeys(name for settings in (*now.served, now) for name in settings.queue_names))


def express_queues(now: Settings) -> dict[str, list[str]]:
    """The express queue of each bot, and its other queues."""
    return {settings.express_queue: settings.queue_names for settings in (*now.served, now)}


def broadcast_queues(now: Settings) -> dict[str, list[str]]:
    """The queue for the broadcasts of each bot, and its other queues."""
    return {settings.broadcast_queue: settings.queue_names for settings in (*now.served, now)}


def _queue(name: str, arguments: dict[str, Any]) -> Queue:
    return Queue(name, Exchange(""), name, queue_arguments=arguments)
