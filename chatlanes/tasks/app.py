"""The Celery app: every option that is not Celery's default, with its reason.

Promises that importing it reads no setting and connects to nothing; a wrong setting ends the command with a sentence.
"""

import sys
from contextlib import suppress
from functools import cache
from typing import Any

from celery import Celery, signals
from celery.utils.log import get_task_logger
from kombu import Exchange, Queue
from kombu.utils.functional import maybe_list
from redis.exceptions import RedisError

from chatlanes import lanes, traces
from chatlanes.logs import Secrets
from chatlanes.logs.process import give_up
from chatlanes.settings import Settings, SettingsError, load
from chatlanes.tasks import flower
from chatlanes.tasks.time_limits import HARD_LIMIT_AFTER_S
from chatlanes.updates.connection import ssl_options
from chatlanes.updates.deployments import ForeignDeployment, Presence
from chatlanes.updates.queues import left_behind, unknown

logger = get_task_logger(__name__)

#: For tasks of your own that need no order.
ORDINARY_QUEUE = "celery"

#: At the end of a worker, and of each of its children.
SEND_TRACES_WITHIN_S = 2.0

app = Celery("chatlanes", set_as_current=True, log="chatlanes.logs.celery_log:WorkerLog")
lanes.install(app, fast=lambda: is_fast())


@cache
def settings() -> Settings:
    """The settings of this worker or Flower. A wrong one ends it here: no traceback says more than the sentence."""
    try:
        return load()
    except SettingsError as error:
        sys.exit(str(error))


def is_fast() -> bool:
    return settings().fast == "1"


@cache
def secrets() -> Secrets:
    """What must be in nothing that this process stores or sends."""
    return Secrets.of(settings())


@app.add_defaults
def configuration() -> dict[str, Any]:
    now = settings()
    return {
        "imports": ("chatlanes.tasks.update",),
        "broker_url": now.redis_url,
        "broker_use_ssl": ssl_options(now),
        "broker_transport_options": {
            "lease_seconds": now.lease_seconds,
            "max_deaths": now.max_attempts,
            "master_name": now.sentinel_master,
            # A server that is away must be noticed within seconds, also by a publisher that waits for its answer.
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
        },
        "task_queues": [
            *(_queue(name, lanes.FIRST_QUEUE_ARGUMENTS) for name in express_queues(now)),
            *(_queue(name, lanes.QUEUE_ARGUMENTS) for name in queue_names(now)),
            Queue(ORDINARY_QUEUE, Exchange(""), ORDINARY_QUEUE),
        ],
        # A misspelt queue would be made, and nobody would read it.
        "task_create_missing_queues": False,
        # Pickle runs whatever code a message holds.
        "accept_content": ["json"],
        # Nobody asks for the result of an update, and each would stay in Redis for a day.
        "task_ignore_result": True,
        # What a handler may take; the hard limit ends what does not listen to the soft one.
        "task_soft_time_limit": now.update_timeout,
        "task_time_limit": now.update_timeout + HARD_LIMIT_AFTER_S if now.update_timeout else None,
    }


@signals.import_modules.connect(weak=False)
def set_up_flower(**_: Any) -> None:
    """Flower has read its options by then, and opens its port afterwards."""
    if flower.starts_here():
        flower.set_up(settings())


def queue_names(now: Settings) -> list[str]:
    """Those of every bot. With BOTS also the ones without a name: a bot that was alone may have left updates there."""
    return list(dict.fromkeys(name for settings in (*now.served, now) for name in settings.queue_names))


def express_queues(now: Settings) -> dict[str, list[str]]:
    """The express queue of each bot, and its other queues."""
    return {settings.express_queue: settings.queue_names for settings in (*now.served, now)}


def _queue(name: str, arguments: dict[str, Any]) -> Queue:
    return Queue(name, Exchange(""), name, queue_arguments=arguments)


@signals.celeryd_init.connect(weak=False)
def start_log(instance: Any, **_: Any) -> None:
    if settings().log_format == "json":
        from chatlanes.logs.celery_log import say_all_in_json

        say_all_in_json(instance)


@signals.celeryd_init.connect(weak=False)
def check_queues(options: dict[str, Any], **_: Any) -> None:
    """A queue that is none ends the worker here; Celery would, with a traceback."""
    asked = [name for option in ("queues", "exclude_queues") for name in maybe_list(options.get(option)) or ()]
    sentence = unknown(asked, set(app.amqp.queues))
    if sentence:
        give_up(settings(), sentence)


@signals.worker_ready.connect(weak=False)
def tell_of_what_was_left_behind(**_: Any) -> None:
    now = settings()
    groups = {each.queue_group: each for each in (*now.served, now)}
    with suppress(RedisError):  # the worker says itself what is wrong with Redis
        for each in groups.values():
            for sentence in left_behind(app.lanes.store.client, each):
                logger.warning(sentence)


@signals.celeryd_init.connect(weak=False)
def remember_what_is_excluded(instance: Any, options: dict[str, Any], **_: Any) -> None:
    instance.excluded_queues = frozenset(options.get("exclude_queues") or ())


@signals.celeryd_after_setup.connect(weak=False)
def read_express(instance: Any, **_: Any) -> None:
    """Who reads some queue of a bot reads its express queue too, whatever -Q says: a payment must not wait for the one
    worker that was told to. `-X updates.express` leaves it out.
    """
    queues = instance.app.amqp.queues
    for express, others in express_queues(settings()).items():
        if express not in instance.excluded_queues and not set(others).isdisjoint(queues.consume_from):
            queues.select_add(queues[express])


@signals.worker_init.connect(weak=False)
def find_bot(**_: Any) -> None:
    """A worker one of whose bots does not import, or has no token, stops here, before it takes any update."""
    from chatlanes.tasks.update import bots

    bots()


@signals.worker_init.connect(weak=False)
def enter_database(**_: Any) -> None:
    """Behind `find_bot`: it needs the tokens. A worker that another deployment's updates would come to stops here."""
    try:
        presence().enter()
    except ForeignDeployment as error:
        give_up(settings(), str(error))


@cache
def presence() -> Presence:
    return Presence("worker", settings())


@signals.worker_ready.connect(weak=False)
def stay_in_database(**_: Any) -> None:
    presence().stay()


@signals.worker_shutdown.connect(weak=False)
def leave_database(**_: Any) -> None:
    presence().leave()


@signals.celeryd_after_setup.connect(weak=False)
def start_traces(sender: str, **_: Any) -> None:
    """Before the pool forks, and after the bot was imported: it may have set them up by itself."""
    traces.start("worker", settings(), sender)


@signals.worker_process_init.connect(weak=False)
def start_traces_in_child(sender: str, **_: Any) -> None:
    """For children that are not forked and inherit nothing."""
    traces.start("worker", settings(), sender)


@signals.worker_process_shutdown.connect(weak=False)
@signals.worker_shutdown.connect(weak=False)
def stop_traces(**_: Any) -> None:
    traces.stop(SEND_TRACES_WITHIN_S)
